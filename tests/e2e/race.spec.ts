// The race: its statistics are those of its samples, its distances those of plain float64 loops, its
// files say what the page says.
import { readFile } from "node:fs/promises";
import type { Page } from "@playwright/test";
import { problemOf } from "../../web/src/race/run.js";
import { expectNothingSerious } from "./axe.js";
import { test } from "./one_page.js";
import { expect, numberOf } from "./page.js";

interface Row {
  contestant: string;
  kind: string;
  length: number;
  sees: string;
  status: string;
  reason?: string;
  ms: { median: number; p10: number; p90: number; min: number };
  samples: number[];
  distance: number;
  heapBytes?: number;
  scratchBytes?: number;
}

async function openRace(page: Page, state = "") {
  await page.goto(`./race.html${state}`);
  await expect(page.getByRole("button", { name: "Start the race" })).toBeVisible();
}

/** Starts, and waits until all lengths are done. */
async function finish(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Start the race" }).click();
  await expect(page.getByTestId("race")).toHaveAttribute("aria-busy", "true");
  await expect(page.getByTestId("race")).toHaveAttribute("aria-busy", "false", { timeout: 60_000 });
  await expect(page.getByTestId("race-status")).toContainText(/^(Quiet|Noisy): in /);
}

async function saved(page: Page, kind: "JSON" | "CSV" | "SVG"): Promise<string> {
  const download = page.waitForEvent("download");
  await page.getByTestId("race").getByRole("button", { name: kind, exact: true }).click();
  return readFile(await (await download).path(), "utf8");
}

const dot = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((sum, value, at) => sum + value * (b[at] as number), 0);

/** The rows of a tensor of one head. */
function rowsOf({ data, shape }: { data: Float32Array; shape: number[] }): number[][] {
  const width = shape.at(-1) ?? 1;
  return Array.from({ length: data.length / width }, (_, row) =>
    Array.from(data.subarray(row * width, (row + 1) * width)),
  );
}

/** Weighted means of v. */
function means(weights: number[][], v: number[][]): number[][] {
  return weights.map((row) => {
    const sum = row.reduce((total, weight) => total + weight, 0);
    return (v[0] ?? []).map(
      (_, d) => row.reduce((total, weight, j) => total + weight * (v[j]?.[d] ?? 0), 0) / sum,
    );
  });
}

/** How far linear attention with elu + 1 is from softmax, over all queries. */
function distanceOfLinear(length: number): number {
  const problem = problemOf(length, "all");
  const [q, k, v] = [rowsOf(problem.q), rowsOf(problem.k), rowsOf(problem.v)];
  const scale = 1 / Math.sqrt(q[0]?.length ?? 1);
  const features = (row: number[]) => row.map((x) => (x > 0 ? x + 1 : Math.exp(x)));
  const keys = k.map(features);
  const linear = means(
    q.map((query) => keys.map((key) => dot(features(query), key))),
    v,
  );
  const exact = means(
    q.map((query) => k.map((key) => Math.exp(scale * dot(query, key)))),
    v,
  );
  let [apart, whole] = [0, 0];
  for (const [i, row] of exact.entries()) {
    for (const [d, value] of row.entries()) {
      apart += ((linear[i]?.[d] ?? 0) - value) ** 2;
      whole += value ** 2;
    }
  }
  return Math.sqrt(apart / whole);
}

/** The value below which a part of the samples lies, linear between neighbours. */
function quantile(samples: number[], part: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  const place = part * (sorted.length - 1);
  const below = Math.floor(place);
  const [low = 0, high = low] = [sorted[below], sorted[below + 1]];
  return low + (place - below) * (high - low);
}

test("a race: every number is there, and its statistics and distances are right", async ({
  page,
}) => {
  test.slow();
  await openRace(page, "#v=1&with=linear.retention.longformer&lengths=64.128");
  await finish(page);
  const report = JSON.parse(await saved(page, "JSON"));
  expect(report.format).toBe("heed-race-1");
  expect(report.request.lengths).toEqual([64, 128]);
  const rows = report.rows as Row[];
  const ids = ["scaled_dot_product", "linear", "retention", "longformer", "plain_js"];
  expect(rows.map(({ contestant }) => contestant)).toEqual([...ids, ...ids]);
  for (const row of rows) {
    const name = `${row.contestant} at ${row.length}: ${row.reason ?? ""}`;
    expect(row.status, name).toBe("timed");
    expect(row.samples.length, name).toBeGreaterThanOrEqual(7);
    for (const [part, value] of [
      [0.5, row.ms.median],
      [0.1, row.ms.p10],
      [0.9, row.ms.p90],
      [0, row.ms.min],
    ] as const) {
      expect(value, name).toBeCloseTo(quantile(row.samples, part), 12);
    }
    expect(row.ms.median, name).toBeGreaterThan(0);
    expect(row.heapBytes === undefined, name).toBe(row.kind === "peer");
    if (row.kind === "mechanism") expect(row.heapBytes, name).toBeGreaterThan(2 ** 20);
    expect(row.sees).toBe(row.contestant === "retention" ? "past" : "all");
    if (["scaled_dot_product", "plain_js"].includes(row.contestant)) {
      expect(row.distance, name).toBeLessThan(1e-6);
    }
    if (row.contestant === "linear") {
      expect(row.distance, name).toBeCloseTo(distanceOfLinear(row.length), 5);
    }
  }
});

test("the table, the CSV file and the plot say the same as the JSON", async ({ page }) => {
  await openRace(page, "#v=1&with=linear&lengths=64");
  await finish(page);
  const { rows } = JSON.parse(await saved(page, "JSON")) as { rows: Row[] };
  const csv = (await saved(page, "CSV")).trimEnd().split("\r\n");
  expect(csv).toHaveLength(rows.length + 1);
  const race = page.getByTestId("race");
  const svg = await saved(page, "SVG");
  for (const words of ["time of a call", "Linear attention", "exact attention"]) {
    expect(svg).toContain(words);
  }
  await race.getByLabel("Show as table").check();
  const table = await race
    .locator("tbody tr")
    .evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll("th, td")].map((cell) => cell.textContent ?? "")),
    );
  for (const [index, row] of rows.entries()) {
    const shown = table[index] ?? [];
    expect(numberOf(shown[2]) / row.ms.median).toBeCloseTo(1, 2);
    expect(shown[5]).toBe(String(row.samples.length));
    // The file has numbers for programs where the table has them for readers.
    const forPrograms = (cell: string) => (/^\d/.test(cell) ? numberOf(cell) : cell);
    const kept = (csv[index + 1] ?? "")
      .split(",")
      .map((cell) => (/^\d/.test(cell) ? Number(cell) : cell));
    expect(kept).toEqual(shown.map(forPrograms));
  }
});

test("with only its past, all are compared with causal attention", async ({ page }) => {
  await openRace(page, "#v=1&with=linear&lengths=64&past=1");
  await finish(page);
  const { rows } = JSON.parse(await saved(page, "JSON")) as { rows: Row[] };
  expect(rows.map(({ sees }) => sees)).toEqual(["past", "past", "past"]);
  for (const row of rows.filter(({ contestant }) => contestant !== "linear")) {
    expect(row.distance, row.contestant).toBeLessThan(1e-6);
  }
});

test("onnxruntime-web runs when it is asked for, from the site's own files", async ({ page }) => {
  test.slow(); // 14 MB are compiled
  const requests: string[] = [];
  page.on("request", (request) => requests.push(request.url()));
  await openRace(page, "#v=1&with=&lengths=64");
  await finish(page);
  expect(requests.filter((url) => url.includes("ort"))).toEqual([]);
  await page.getByLabel(/onnxruntime-web/).check();
  await expect.poll(() => page.url()).toContain("onnx=1");
  await finish(page);
  const { rows } = JSON.parse(await saved(page, "JSON")) as { rows: Row[] };
  const peers = rows.filter(({ contestant }) => contestant.startsWith("onnxruntime"));
  expect(peers).toHaveLength(2);
  for (const row of peers) {
    expect(row.status, row.reason).toBe("timed");
    expect(row.distance, row.contestant).toBeLessThan(1e-5);
  }
});

test("what is chosen is in the address; what is none of ours is left out", async ({ page }) => {
  await openRace(page, "#v=1&with=linear.secret.linear&lengths=64.77.128&runs=thorough");
  await expect(page.getByRole("button", { name: "Remove Linear attention" })).toHaveCount(1);
  await expect(page.getByRole("button", { name: /^Remove/ })).toHaveCount(1);
  for (const [name, pressed] of [
    ["64", "true"],
    ["128", "true"],
    ["256", "false"],
    ["thorough: at least 21", "true"],
  ] as const) {
    const button = page.getByRole("button", { name, exact: true });
    await expect(button).toHaveAttribute("aria-pressed", pressed);
  }
  await page.getByRole("button", { name: "64", exact: true }).click();
  await expect.poll(() => page.url()).toMatch(/lengths=128&runs=thorough$/);
  await page.getByLabel("Add a mechanism").selectOption("reformer");
  await expect.poll(() => page.url()).toContain("with=linear.reformer");
});

test("a race can be stopped, and what was measured stays", async ({ page }) => {
  await openRace(page, "#v=1&with=linear&lengths=64.4096&runs=thorough");
  await page.getByRole("button", { name: "Start the race" }).click();
  const race = page.getByTestId("race");
  await expect(race.getByTestId("readout")).toContainText("64 tokens:", { timeout: 45_000 });
  await page.getByRole("button", { name: "Stop" }).click();
  await expect(page.getByTestId("race-status")).toContainText("Stopped.");
  await expect(race.getByTestId("readout")).toContainText("64 tokens:");
  await expect(page.getByRole("button", { name: "Start the race" })).toBeEnabled();
});

test("axe finds nothing serious in results, as a picture or a table", async ({ page }) => {
  await openRace(page, "#v=1&with=linear&lengths=64");
  await finish(page);
  for (const asTable of [false, true]) {
    if (asTable) await page.getByTestId("race").getByLabel("Show as table").check();
    await expectNothingSerious(page, asTable ? "as a table" : "as a picture");
  }
});
