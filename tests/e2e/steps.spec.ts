// Figures that are stepped through: the sums of a softmax, parts that merge, chunks. Their tables
// against plain float64 loops made here.
import type { Locator, Page } from "@playwright/test";
import { COUNT, K as SUM_K, Q as SUM_Q } from "../../web/src/mechanisms/flash/overflow.js";
import { V as SPLIT_V } from "../../web/src/mechanisms/flash/split.js";
import { DIM, K, KEYS, Q } from "../../web/src/mechanisms/flash/tiles.js";
import { K as WORD_K, Q as WORD_Q, WORDS } from "../../web/src/mechanisms/linear/state.js";
import { test } from "./one_page.js";
import { expect, leave } from "./page.js";

const toNumber = (text: string | undefined) => Number((text ?? "").replace("−", "-"));

async function openFigure(page: Page, id: string, name: string): Promise<Locator> {
  await page.goto(`./mechanisms/${id}.html`);
  const figure = page.getByTestId(name);
  await expect(figure).toHaveAttribute("aria-busy", "false");
  return figure;
}

async function tableOf(figure: Locator): Promise<string[][]> {
  await figure.getByLabel("Show as table").check();
  const rows = await figure
    .locator("tbody tr")
    .evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll("th, td")].map((cell) => cell.textContent ?? "")),
    );
  await figure.getByLabel("Show as table").uncheck();
  return rows;
}

const dot = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((sum, value, at) => sum + value * (b[at] as number), 0);

const row = (all: ArrayLike<number>, at: number, width: number) =>
  Array.from({ length: width }, (_, d) => all[at * width + d] as number);

const logSumExp = (scores: number[]) => {
  const top = Math.max(...scores);
  return top + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - top), 0));
};

test("a sum of e^s overflows where float32 ends; with the maximum it stays small", async ({
  page,
}) => {
  const figure = await openFigure(page, "flash", "overflow");
  const scores = Array.from(
    { length: COUNT },
    (_, key) => 30 * dot(row(SUM_Q.data, 0, 4), row(SUM_K.data, key, 4)),
  );
  const rows = await tableOf(figure);
  expect(rows).toHaveLength(COUNT);
  let sum = 0;
  let top = -Infinity;
  let safe = 0;
  for (const [key, score] of scores.entries()) {
    sum += Math.exp(score);
    safe = safe * Math.exp(top - Math.max(top, score)) + Math.exp(score - Math.max(top, score));
    top = Math.max(top, score);
    const cells = rows[key] as string[];
    expect(Math.abs(toNumber(cells[1]) - score)).toBeLessThan(1e-2);
    expect(cells[2] === "∞", `key ${key + 1}`).toBe(sum > 3.4028234663852886e38);
    expect(Math.abs(toNumber(cells[4]) - safe)).toBeLessThan(1e-2);
  }
  expect(rows.at(-1)?.[2]).toBe("∞");
  await figure.getByRole("slider", { name: "After key" }).fill(String(COUNT - 1));
  const readout = await figure.getByTestId("readout").textContent();
  const [, log, lse] =
    /log ℓ \+ m is (\d+\.\d+); heed’s lse is (\d+\.\d+)/.exec(readout ?? "") ?? [];
  expect(Math.abs(Number(log) - logSumExp(scores))).toBeLessThan(1e-2);
  expect(Math.abs(Number(lse) - logSumExp(scores))).toBeLessThan(1e-2);
  // With small scores nothing overflows.
  await figure.getByRole("slider", { name: "Scale of scores" }).fill("1");
  expect((await tableOf(figure)).map((cells) => cells[2])).not.toContain("∞");
});

test("parts of the keys merge into attention over all of them", async ({ page }) => {
  const figure = await openFigure(page, "flash", "split");
  const scores = Array.from(
    { length: KEYS },
    (_, key) => 0.25 * dot(row(Q.data, 0, DIM), row(K.data, key, DIM)),
  );
  for (const count of [8, 2]) {
    await figure.getByRole("button", { name: `${count} parts` }).click();
    const size = KEYS / count;
    const rows = await tableOf(figure);
    expect(rows).toHaveLength(count);
    for (const [part, cells] of rows.entries()) {
      const own = logSumExp(scores.slice(part * size, (part + 1) * size));
      const merged = logSumExp(scores.slice(0, (part + 1) * size));
      expect(Math.abs(toNumber(cells[2]) - own)).toBeLessThan(1e-4);
      expect(Math.abs(toNumber(cells[3]) - merged)).toBeLessThan(1e-4);
      expect(Math.abs(toNumber(cells[4]) - Math.exp(own - logSumExp(scores)))).toBeLessThan(1e-4);
    }
    await figure.getByRole("slider", { name: "Merged" }).fill(String(count - 1));
    await expect(figure.getByTestId("readout")).toContainText(
      /differs by at most (0|\d\.\d\s×\s10⁻[⁶-⁹])/,
    );
  }
  expect(SPLIT_V.data.length).toBe(KEYS * DIM);
});

test("chunks of every size give the weights of the whole, by two ways", async ({ page }) => {
  const figure = await openFigure(page, "retention", "chunks");
  const weight = (i: number, j: number) =>
    (0.8 ** (i - j) * dot(row(WORD_Q, i, 8), row(WORD_K, j, 8))) / Math.sqrt(8);
  for (const size of [1, 4, 7, 13]) {
    await figure.getByRole("button", { name: String(size), exact: true }).click();
    const rows = await tableOf(figure);
    for (const [i, cells] of rows.entries()) {
      expect(cells[1]).toBe(String(Math.floor(i / size) + 1));
      for (let j = 0; j <= i; j++) {
        expect(Math.abs(toNumber(cells[j + 2]) - weight(i, j)), `${size}: ${i} ${j}`).toBeLessThan(
          2e-4,
        );
      }
    }
    const count = Math.ceil(WORDS.length / size);
    const inside = WORDS.flatMap((_, i) =>
      WORDS.filter((__, j) => j <= i && Math.floor(i / size) === Math.floor(j / size)),
    ).length;
    if (count > 1)
      await figure.getByRole("slider", { name: "Chunks read" }).fill(String(count - 1));
    await expect(figure.getByTestId("readout")).toContainText(
      `${inside} pairs inside chunks, ${count - 1} times a state`,
    );
    await expect(figure.getByTestId("readout")).toContainText(/at most (0|\d\.\d\s×\s10⁻[⁶-⁹])\./);
  }
});

test("sliders and scrubbers of a figure are in the link, and a link moves them", async ({
  page,
}) => {
  const figure = await openFigure(page, "flash", "overflow");
  await expect(page.getByTestId("panel-flash")).toBeVisible();
  await figure.getByRole("slider", { name: "Scale of scores" }).fill("12");
  await figure.getByRole("slider", { name: "After key" }).fill("7");
  await expect.poll(() => page.url()).toContain("figure.scale-of-scores=12");
  await expect.poll(() => page.url()).toContain("figure.after-key=7");
  const address = page.url();
  await leave(page);
  await page.goto(address);
  await expect(figure.getByRole("slider", { name: "Scale of scores" })).toHaveValue("12");
  await expect(figure.getByRole("slider", { name: "After key" })).toHaveValue("7");
  await expect(figure.getByTestId("readout")).toContainText("Key 8, ");
  // Out of range, and of another format: as if nothing had been asked.
  await leave(page);
  await page.goto(address.replace("=12", "=1e9").replace("after-key=7", "after-key=x"));
  await expect(figure.getByRole("slider", { name: "Scale of scores" })).toHaveValue("30");
});
