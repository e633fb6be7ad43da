// The numbers on the page are those of a float64 computation made here, in plain loops.
import { test } from "./one_page.js";
import {
  allowedError,
  attendInFloat64,
  DemoPage,
  expect,
  largestDifference,
  readExport,
  readTable,
} from "./page.js";

const STATES: Record<string, string> = {
  "the default sentence": "",
  "a hot temperature": "T=4",
  "a cold temperature": "T=0.2",
  "a softcap": "cap=2",
  ALiBi: "alibi=0.5",
  "only the past": "past=1",
  "a window": "left=2&right=1",
  "the first three words": "first=3",
  "painted cells": "hide=3-1s.2-2q",
  "everything together": "T=0.7&cap=5&alibi=0.3&past=1&left=4&first=9&hide=14-2b",
  "a row that sees nothing": "first=0",
  "one word": "text=alone",
  "the longest sentence": `text=${"word+and+".repeat(20)}`,
};

for (const [name, state] of Object.entries(STATES)) {
  test(`all heads match float64: ${name}`, async ({ page }) => {
    const demo = new DemoPage(page);
    await demo.open(state);
    const figure = await readExport(page);
    for (const head of figure.heads.keys()) {
      const truth = attendInFloat64(figure, head);
      const allowed = allowedError(figure, head);
      expect(largestDifference(figure.weights[head], truth.weights)).toBeLessThan(allowed);
      expect(largestDifference(figure.output[head], truth.output)).toBeLessThan(allowed);
    }
  });
}

test("the tables show the same numbers, hidden cells as hidden", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("text=four+words+stand+here&past=1&head=3");
  const figure = await readExport(page);
  const truth = attendInFloat64(figure, figure.head);
  expect(figure.tokens).toEqual(["four", "words", "stand", "here"]);
  expect(largestDifference(await readTable(page, "Weights"), truth.weights)).toBeLessThan(6e-5);
  expect(largestDifference(await readTable(page, "Output"), truth.output)).toBeLessThan(6e-5);
  await demo.show("Weights");
  await page.getByLabel("Show as table").check();
  await expect(page.locator(".stage td", { hasText: "hidden" })).toHaveCount(6);
});

test("the caption names the back end, a time and the agreement with the reference", async ({
  page,
}) => {
  const demo = new DemoPage(page);
  await demo.open();
  await expect(demo.caption).toContainText(/WebAssembly \((plain|relaxed) SIMD, 1 thread\)/);
  await expect(demo.caption).toContainText(/in \d+(\.\d+)?\s(µs|ms) \(median/);
  await expect(demo.caption).toContainText(/output \d\.\d\s×\s10⁻[⁶⁷⁸]/);
});

test("the same text gives the same numbers, another text others", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("text=salt+and+pepper");
  const first = await readExport(page);
  await demo.sentence.fill("salt or pepper");
  const second = await readExport(page);
  await demo.sentence.fill("salt and pepper");
  expect(await readExport(page)).toEqual(first);
  expect(second.q).not.toEqual(first.q);
  // The first word is the same at the same place, so its query is the same.
  expect(second.q[0][0]).toEqual(first.q[0][0]);
});

test("each head does what its title says", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("text=rose+is+a+rose+is+roses");
  const { weights } = await readExport(page);
  const [letters, before, near, spread] = weights;
  expect(letters[0][3]).toBeCloseTo(letters[0][0], 5);
  expect(letters[0][5]).toBeGreaterThan(letters[0][1]);
  for (const i of [1, 2, 3, 4, 5]) {
    expect(Math.max(...before[i])).toBe(before[i][i - 1]);
    expect(near[i][i]).toBe(Math.max(...near[i]));
  }
  expect(near[2][1]).toBeGreaterThan(near[2][5]);
  expect(Math.max(...spread.flat())).toBeLessThan(0.6);
});

test("worked example: the first row is 0.401, 0.401, 0.198", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("example=dot");
  const table = page.getByTestId("dot-example").locator("table", { hasText: "softmax" });
  await expect(table.locator("tr").first().locator("td")).toHaveText(["0.401", "0.401", "0.198"]);
  const output = page.getByTestId("dot-example").locator("table", { hasText: "output" });
  // 0.401 (1, 0) + 0.401 (0, 2) + 0.198 (1, 1), with unrounded weights.
  await expect(output.locator("tr").first().locator("td")).toHaveText(["0.599", "1.000"]);
});

test("worked example: its numbers can be changed and reset", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("example=dot");
  const example = page.getByTestId("dot-example");
  await example.getByLabel("K, keys, row 3, column 1").fill("1");
  const row = example.locator("table", { hasText: "softmax" }).locator("tr").first();
  await expect(row.locator("td")).toHaveText(["0.333", "0.333", "0.333"]);
  await expect.poll(() => page.url()).toContain("numbers=");
  await page.locator("#example-dot").getByText("Reset numbers").click();
  await expect(row.locator("td")).toHaveText(["0.401", "0.401", "0.198"]);
});

test("worked example: rows sum to one over the valid lengths 2 and 3", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("example=lengths");
  const rows = page
    .getByTestId("lengths-example")
    .locator("table", { hasText: "Weights" })
    .locator("tr");
  for (const [index, length] of [2, 2, 3, 3].entries()) {
    const cells = await rows.nth(index).locator("td").allTextContents();
    const numbers = cells.filter((text) => text.trim() !== "hidden").map(Number);
    expect(numbers).toHaveLength(length);
    expect(Math.abs(numbers.reduce((sum, value) => sum + value, 0) - 1)).toBeLessThan(0.002);
  }
  await page.getByLabel("Valid length 1").fill("0");
  await expect(page.getByText("Sees nothing: every weight is zero.")).toBeVisible();
});

test("worked example: every kernel agrees with the reference, gaps are explained", async ({
  page,
}) => {
  const demo = new DemoPage(page);
  await demo.open("example=kernel");
  const example = page.getByTestId("kernel-example");
  for (const kernel of ["gaussian", "boxcar", "constant", "triangular"]) {
    await example.getByRole("button", { name: kernel }).click();
    await expect(example.getByTestId("kernel-error")).toHaveText(/^(0|\d\.\d\s×\s10⁻[⁶⁷⁸])$/);
  }
  await example.getByRole("slider", { name: /Width/ }).fill("0.1");
  await expect(example.getByText(/places see no point within reach/)).toBeVisible();
});

test("the constant kernel estimates the mean everywhere", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("example=kernel&kernel=constant");
  const spoken = await page.getByText(/Estimates from x = 0 to 5/).textContent();
  const estimates = spoken?.match(/\d+\.\d\d/g) ?? [];
  expect(estimates).toHaveLength(51);
  expect(new Set(estimates).size).toBe(1);
});
