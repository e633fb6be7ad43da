// The page of committed results: what its tables say is what the files in native_bench/results say,
// read here once more.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Locator } from "@playwright/test";
import { grouped, milliseconds } from "../../web/src/lib/format.js";
import { test } from "./one_page.js";
import { expect, leave, numberOf } from "./page.js";

const FOLDER = fileURLToPath(new URL("../../native_bench/results/", import.meta.url));

interface ResultRow {
  peer: string;
  mechanism: string;
  status: string;
  dtype: string;
  threads: number;
  shape: { q_len: number; kv_len: number; head_dim: number; mask: string };
  ms: { median: number };
  gflops?: number;
  max_error: number;
  error_bound: number;
  flop: number;
  bytes: number;
}

interface CallRow {
  status: string;
  mechanism: string;
  dtype: string;
  mask: string;
  group: string;
  length: number;
  kv_len: number;
  head_dim: number;
  visible: number;
  gbps: number;
  ms: { median: number };
  forward_ms: { median: number };
}

const FILES = readdirSync(FOLDER)
  .filter((file) => file.endsWith(".json"))
  .map((file) => ({ file, result: JSON.parse(readFileSync(FOLDER + file, "utf8")) }));

/** The file that the caption of a section names. */
async function fileOf(section: Locator) {
  const caption = (await section.locator("figcaption").first().textContent()) ?? "";
  const found = FILES.find(({ file }) => caption.includes(file));
  if (!found) throw new Error(`no committed file in "${caption}"`);
  const { machine, build, date } = found.result;
  for (const part of [machine.gpu?.name ?? machine.cpu_model, build.commit, date.slice(0, 10)]) {
    expect(caption).toContain(part);
  }
  return found.result;
}

/** Presses a choice. A run with one possibility offers none. */
async function choose(section: Locator, name: string): Promise<void> {
  const button = section.getByRole("button", { name, exact: true });
  if ((await button.count()) > 0) await button.click();
}

async function tableOf(section: Locator, figure = 0): Promise<string[][]> {
  const place = section.locator("figure").nth(figure);
  await place.getByLabel("Show as table").check();
  return place
    .locator("tbody tr")
    .evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll("th, td")].map((cell) => cell.textContent ?? "")),
    );
}

test("says that no GPU was measured, as long as no committed file is of one", async ({ page }) => {
  await page.goto("./benchmarks.html");
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  const measured = FILES.some(({ result }) => result.machine.gpu);
  await expect(page.getByText("no result of a GPU is committed yet")).toHaveCount(measured ? 0 : 1);
});

test("a command is there to its end, and scrolls by the keyboard", async ({ page }) => {
  await page.goto("./benchmarks.html");
  const commands = page.getByTestId("command");
  await expect(commands.first()).toBeVisible();
  const known = new Set(FILES.map(({ result }) => result.command));
  for (const command of await commands.all()) {
    expect(known).toContain(await command.textContent());
    expect(
      await command.evaluate(({ clientHeight, scrollHeight }) => scrollHeight - clientHeight),
    ).toBe(0);
  }
  const command = commands.first();
  await command.focus();
  await page.keyboard.press("ArrowRight");
  await expect.poll(() => command.evaluate(({ scrollLeft }) => scrollLeft)).toBeGreaterThan(0);
});

test("the introduction names the programs of the run, and no others", async ({ page }) => {
  await page.goto("./benchmarks.html");
  const section = page.getByTestId("peers");
  const run = section.getByLabel("Run");
  for (let index = 0; index < (await run.locator("option").count()); index++) {
    await run.selectOption({ index });
    const { rows } = await fileOf(section);
    const peers = new Set(rows.map(({ peer }: ResultRow) => peer));
    const named = await section.locator(".intro em").allTextContents();
    expect(named.length).toBeGreaterThan(0);
    expect(named.filter((peer) => !peers.has(peer))).toEqual([]);
  }
});

test("every run with peers is there, and its table has the numbers of its file", async ({
  page,
}) => {
  await page.goto("./benchmarks.html");
  const section = page.getByTestId("peers");
  const run = section.getByLabel("Run");
  const count = await run.locator("option").count();
  // Of prompts: a run on a GPU may have decoding or recurrences alone.
  const isPrompt = ({ mechanism, shape, status }: ResultRow) =>
    mechanism === "scaled_dot_product" && shape.q_len === shape.kv_len && status === "timed";
  const programs = (result: { rows: ResultRow[] }) =>
    new Set(result.rows.filter(isPrompt).map(({ peer }) => peer)).size;
  const withPeers = FILES.filter(
    ({ result }) => result.schema === "heed-bench" && programs(result) > 1,
  );
  expect(count).toBe(withPeers.length);
  const most = Math.max(...withPeers.map(({ result }) => programs(result)));
  const first = await fileOf(section);
  if (!first.machine.gpu) expect(programs(first), "the run of most programs").toBe(most);
  for (let index = 0; index < count; index++) {
    await run.selectOption({ index });
    const result = await fileOf(section);
    const timed = result.rows.filter(
      (row: ResultRow) => isPrompt(row) && row.threads === 1,
    ) as ResultRow[];
    const { shape: chosen, dtype } = timed.at(-1) as ResultRow;
    await choose(section, dtype);
    await choose(section, chosen.mask === "causal" ? "only its past" : "every token sees all");
    await choose(section, `head size ${chosen.head_dim}`);
    const wanted = timed.filter(
      (row) =>
        row.dtype === dtype &&
        row.shape.mask === chosen.mask &&
        row.shape.head_dim === chosen.head_dim,
    );
    expect(wanted.length).toBeGreaterThan(1);
    const shown = await tableOf(section);
    expect(shown).toHaveLength(wanted.length);
    for (const { peer, shape, ms, gflops } of wanted) {
      const row = shown.find((cells) => cells[0] === peer && numberOf(cells[1]) === shape.kv_len);
      expect(numberOf(row?.[2]) / ms.median, `${peer} ${shape.kv_len}`).toBeCloseTo(1, 4);
      expect(numberOf(row?.[5]) / (gflops as number)).toBeCloseTo(1, 4);
    }
    await section.locator("figure").first().getByLabel("Show as table").uncheck();
  }
});

test("the curves are those of their file, and the read-out follows the mechanism", async ({
  page,
}) => {
  await page.goto("./benchmarks.html");
  const section = page.getByTestId("growth");
  const { curves } = await fileOf(section);
  await section.getByLabel("Mechanism that stands out").selectOption("linear");
  const of = (id: string) =>
    curves.find((curve: { mechanism: string }) => curve.mechanism === id).points as {
      length: number;
      ms: { median: number };
    }[];
  const last = of("scaled_dot_product").at(-1);
  const linear = of("linear").find(({ length }) => length === last?.length);
  await expect(section.getByTestId("readout")).toHaveText(
    `${grouped(last?.length ?? 0)} tokens: linear ${milliseconds(linear?.ms.median ?? 0)}, exact attention ${milliseconds(last?.ms.median ?? 0)}.`,
  );
  const rows = await tableOf(section);
  expect(rows).toHaveLength(curves.length);
  const cells = rows.find(([name]) => name === "linear")?.slice(2) ?? [];
  const points = of("linear");
  expect(cells.filter(Boolean)).toHaveLength(points.length);
  for (const [at, { ms }] of points.entries()) {
    expect(numberOf(cells[at]) / ms.median).toBeCloseTo(1, 4);
  }
});

/** To the six places that the page shows. */
function expectSame(shown: number, value: number): void {
  expect(Math.abs(shown - value)).toBeLessThanOrEqual(5e-6 * value);
}

test("the roofline and the errors are computed from their file", async ({ page }) => {
  await page.goto("./benchmarks.html");
  const section = page.getByTestId("mechanisms");
  const { rows, probes, machine } = await fileOf(section);
  const peak = probes.fma.find(
    (row: { target: string; threads: number }) =>
      row.target === machine.simd.chosen && row.threads === 1,
  ).gflops;
  const rate = probes.stream.find((row: { threads: number }) => row.threads === 1).read_gbps;
  const shown = await tableOf(section);
  const counted = (rows as ResultRow[]).filter((row) => (row.gflops ?? 0) > 0 && row.flop > 0);
  expect(shown).toHaveLength(counted.length);
  for (const { mechanism, shape, gflops, flop, bytes } of counted) {
    const row = shown.find((cells) => cells[0] === mechanism && cells[1] === shape.mask);
    const ceiling = Math.min(peak, (rate * flop) / bytes);
    const percent = Math.round((100 * (gflops as number)) / ceiling);
    expect(Math.abs(Number.parseInt(row?.[5] ?? "", 10) - percent), mechanism).toBeLessThan(2);
  }
  const errors = await tableOf(section, 1);
  for (const { mechanism, shape, max_error, error_bound } of rows as ResultRow[]) {
    const row = errors.find((cells) => cells[0] === mechanism && cells[1] === shape.mask);
    expectSame(numberOf(row?.[2]), max_error);
    expect(numberOf(row?.[3])).toBeGreaterThanOrEqual(numberOf(row?.[2]));
    expectSame(numberOf(row?.[3]), error_bound);
  }
});

test("decoding, gradients, patterns and steps are those of their files", async ({ page }) => {
  await page.goto("./benchmarks.html");
  const timed = (result: { rows: CallRow[] }) =>
    result.rows.filter((row) => row.status === "timed");
  const decode = page.getByTestId("decode");
  const decoded = timed(await fileOf(decode));
  const shown = await tableOf(decode);
  expect(shown).toHaveLength(decoded.length);
  for (const { dtype, length, gbps } of decoded) {
    const row = shown.find(([name, keys]) => name === dtype && numberOf(keys) === length);
    expect(numberOf(row?.[2]) / gbps).toBeCloseTo(1, 4);
  }
  const backward = page.getByTestId("backward");
  const gradients = timed(await fileOf(backward));
  const times = await tableOf(backward);
  expect(times).toHaveLength(gradients.length);
  for (const { mask, kv_len, ms, forward_ms } of gradients) {
    const row = times.find(([name, keys]) => name === mask && numberOf(keys) === kv_len);
    expect(numberOf(row?.[3]) / ms.median).toBeCloseTo(1, 4);
    expect(numberOf(row?.[4]) / forward_ms.median).toBeCloseTo(1, 4);
  }
  const patterns = page.getByTestId("patterns");
  const all = timed(await fileOf(patterns)).filter(({ group }) => group === "blocks of 64 in 4096");
  const dense = all.find(({ visible }) => visible === 1)?.ms.median ?? Number.NaN;
  const shares = await tableOf(patterns);
  expect(shares).toHaveLength(all.length);
  for (const { visible, ms } of all) {
    const row = shares.find(([, share]) => Math.abs(numberOf(share) - 100 * visible) < 1e-3);
    expect(numberOf(row?.[2])).toBeCloseTo((100 * ms.median) / dense, 2);
  }
  const steps = page.getByTestId("steps");
  const made = timed(await fileOf(steps)).filter(({ head_dim }) => head_dim === 64);
  const bars = await tableOf(steps);
  expect(bars.map(([name]) => name)).toEqual(made.map(({ mechanism }) => mechanism));
});

test("gradients of all mechanisms are those of their file, and a row is chosen by name", async ({
  page,
}) => {
  await page.goto("./benchmarks.html");
  const section = page.getByTestId("gradients");
  const timed = ((await fileOf(section)).rows as CallRow[]).filter(
    ({ status }) => status === "timed",
  );
  const shown = await tableOf(section);
  expect(shown).toHaveLength(timed.length);
  expect(new Set(shown.map(([name]) => name)).size).toBeGreaterThan(50);
  for (const { mechanism, mask, ms, forward_ms } of timed) {
    const row = shown.find((cells) => cells[0] === mechanism && cells[1] === mask);
    expectSame(numberOf(row?.[2]), ms.median);
    expectSame(numberOf(row?.[3]), forward_ms.median);
    expect((numberOf(row?.[4]) * forward_ms.median) / ms.median).toBeCloseTo(1, 3);
  }
  await section.locator("figure").getByLabel("Show as table").uncheck();
  const of = (name: string, kind: string) =>
    timed.find(({ mechanism, mask }) => mechanism === name && mask === kind) as CallRow;
  const { ms, forward_ms } = of("linformer", "full");
  await section.getByLabel("Mechanism that stands out").selectOption("linformer");
  await expect(section.getByTestId("readout")).toContainText(
    `linformer, full: gradients ${ms.median.toFixed(2)} ms, ${(ms.median / forward_ms.median).toFixed(2)} times`,
  );
  // Rows are in the order of what is compared: the first of the plot takes the least time.
  await section.getByRole("button", { name: "time", exact: true }).click();
  await expect(page).toHaveURL(/#gradients&v=1&measure=ms&mechanism=linformer$/);
  const canvas = section.locator("canvas");
  await canvas.scrollIntoViewIfNeeded();
  await canvas.hover({ position: { x: 60, y: 52 } });
  const full = timed.filter(
    ({ mask, mechanism }) =>
      mask === "full" || !timed.some((r) => r.mechanism === mechanism && r.mask === "full"),
  );
  const least = full.reduce((a, b) => (b.ms.median < a.ms.median ? b : a));
  await expect(section.getByTestId("readout")).toContainText(`${least.mechanism}, `);
});

test("pointing at a point says which mechanism it is", async ({ page }) => {
  await page.goto("./benchmarks.html");
  const figure = page.getByTestId("mechanisms").locator("figure").nth(1);
  await figure.scrollIntoViewIfNeeded();
  const box = await figure.locator("canvas").boundingBox();
  if (!box) throw new Error("no canvas");
  const seen = new Set<string>();
  for (let part = 0.3; part < 0.9; part += 0.05) {
    await page.mouse.move(box.x + part * box.width, box.y + 0.55 * box.height);
    seen.add((await figure.getByTestId("readout").textContent()) ?? "");
  }
  expect(seen.size).toBeGreaterThan(1);
  for (const text of seen) expect(text).toMatch(/^\w+, (full|causal): largest error /);
});

test("the run of a section and what was chosen in it are in its link", async ({ page }) => {
  await page.goto("./benchmarks.html");
  const section = page.getByTestId("peers");
  await section.getByLabel("Run").selectOption({ index: 1 });
  await expect(page).toHaveURL(/#peers&v=1&run=\d{4}-\d\d-\d\d_/);
  const mask = section.getByRole("group", { name: "Mask" }).getByRole("button").nth(1);
  if ((await mask.count()) > 0) await mask.click();
  const growth = page.getByTestId("growth");
  const caption = await section.locator("figcaption").first().textContent();
  const link = new URL(page.url()).hash;
  await leave(page);
  await page.goto(`./benchmarks.html${link}`);
  await expect(section.getByLabel("Run")).toHaveValue("1");
  await expect(section.locator("figcaption").first()).toHaveText(caption ?? "");
  await expect(section).toBeInViewport();
  await growth.getByLabel("Mechanism that stands out").selectOption("linear");
  await expect(page).toHaveURL(/#growth&v=1&mechanism=linear&peers\.run=/);
  // Loaded again every section is as it was; a link from before sections kept their choices leads to one.
  await page.reload();
  await expect(growth.getByTestId("readout")).toContainText("tokens: linear");
  await expect(section.getByLabel("Run")).toHaveValue("1");
  await page
    .getByRole("navigation", { name: "On this page" })
    .getByText("Under the roofline")
    .click();
  await expect(page).toHaveURL(/#mechanisms&v=1&peers\.run=.*&growth\.mechanism=linear$/);
  await expect(page.getByTestId("mechanisms")).toBeInViewport();
  await expect(growth.getByTestId("readout")).toContainText("tokens: linear");
  await leave(page);
  await page.goto("./benchmarks.html?embed=1#growth&v=1&mechanism=linear");
  await expect(growth.getByTestId("readout")).toContainText("tokens: linear");
  await expect(section).toHaveCount(0);
  // What is not one of ours chooses nothing.
  await leave(page);
  await page.goto("./benchmarks.html#peers&v=1&run=none&mask=%3Cb%3E&x=1");
  await expect(section.getByLabel("Run")).toHaveValue("0");
});
