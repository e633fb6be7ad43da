// Edge cases: what heed answers, against numbers worked out here, and the counts of the conformance
// page.
import { readFileSync } from "node:fs";
import type { Page } from "@playwright/test";
import { test } from "./one_page.js";
import { expect } from "./page.js";

const DOCS = new URL("../../docs/conformance.md", import.meta.url);

async function openCases(page: Page) {
  await page.goto("./edge_cases.html");
  const first = page.getByTestId("case-empty_row");
  await expect(first.getByTestId("agreement")).toHaveText(/^0$|10⁻/);
}

/** A small table of heed's answer, as the page writes it. */
const numbers = (page: Page, id: string, name: string) =>
  page
    .getByTestId(`case-${id}`)
    .getByRole("group", { name: "heed", exact: true })
    .getByTestId(name)
    .locator("tr")
    .evaluateAll((rows) =>
      rows.map((row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent ?? "")),
    );

const plain = (page: Page, id: string, name: string | RegExp) =>
  page
    .getByTestId(`case-${id}`)
    .getByRole("group", { name })
    .locator("tr")
    .evaluateAll((rows) =>
      rows.map((row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent ?? "")),
    );

const pick = (page: Page, id: string, variant: string) =>
  page.getByTestId(`case-${id}`).getByRole("button", { name: variant, exact: true }).click();

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
const shown = (value: number) => value.toFixed(4).replace("-", "−");

test("a query with no key has output 0, weights 0 and lse minus infinity", async ({ page }) => {
  await openCases(page);
  const [low, high] = [shown(sigmoid(-1)), shown(sigmoid(1))];
  expect(await numbers(page, "empty_row", "weights")).toEqual([
    [low, high, "0.0000"],
    ["0.0000", "0.0000", "0.0000"],
  ]);
  expect(await numbers(page, "empty_row", "output")).toEqual([[shown(1 + sigmoid(1))], ["0.0000"]]);
  expect(await numbers(page, "empty_row", "lse")).toEqual([[shown(Math.log(1 + Math.E)), "−∞"]]);
  const formula = await plain(page, "empty_row", /^the formula/);
  expect(formula[1]).toEqual(["NaN", "NaN", "NaN"]);
  // Scores 0, 1, 2 all sink by the same number: as if there were no mask.
  const exps = [1, Math.E, Math.E ** 2];
  const sum = exps.reduce((total, value) => total + value);
  const filled = await plain(page, "empty_row", "score + (−10\u202f000) where hidden");
  for (const [at, value] of exps.entries()) {
    expect(Number(filled[1]?.[at])).toBeCloseTo(value / sum, 3);
  }
});

test("a causal mask of unequal lengths starts or ends where it is told, or is refused", async ({
  page,
}) => {
  await openCases(page);
  const triangle = (offset: number) =>
    [0, 1].map((i) =>
      [0, 1, 2, 3, 4].map((j) => (j <= i + offset ? shown(1 / (i + offset + 1)) : "0.0000")),
    );
  expect(await numbers(page, "unequal_lengths", "weights")).toEqual(triangle(0));
  await pick(page, "unequal_lengths", 'queryOffset: "end"');
  expect(await numbers(page, "unequal_lengths", "weights")).toEqual(triangle(3));
  await pick(page, "unequal_lengths", "not said");
  await expect(page.getByTestId("case-unequal_lengths")).toContainText(/Refused: .*queryOffset/);
});

test("windows count what they say", async ({ page }) => {
  await openCases(page);
  const band = (left: number) =>
    [0, 1, 2, 3, 4].map((i) => {
      const count = Math.min(i, left) + 1;
      return [0, 1, 2, 3, 4].map((j) => (j <= i && j >= i - left ? shown(1 / count) : "0.0000"));
    });
  expect(await numbers(page, "window", "weights")).toEqual(band(2));
  await pick(page, "window", "lastN(2)");
  expect(await numbers(page, "window", "weights")).toEqual(band(1));
  await pick(page, "window", "{ left: 0, right: 0 }");
  expect(await numbers(page, "window", "weights")).toEqual(band(0));
});

test("NaN behind a mask, huge logits, masks that are numbers, a softcap: heed's weights", async ({
  page,
}) => {
  await openCases(page);
  expect(await numbers(page, "poison", "weights")).toEqual([
    [shown(sigmoid(-1)), shown(sigmoid(1)), "0.0000"],
    ["1.0000", "0.0000", "0.0000"],
  ]);
  expect((await plain(page, "poison", /without a selection/)).flat()).toContain("NaN");
  expect(await numbers(page, "huge_logits", "weights")).toEqual([["1.0000", "0.0000", "0.0000"]]);
  expect((await plain(page, "huge_logits", /without the maximum/)).flat()).toContain("NaN");
  await pick(page, "huge_logits", "two are equal");
  expect(await numbers(page, "huge_logits", "weights")).toEqual([["0.5000", "0.5000", "0.0000"]]);
  expect(await numbers(page, "mask_as_number", "weights")).toEqual([
    ["0.5000", "0.5000", "0.0000"],
  ]);
  // −20 000 against 0 − 10 000: the hidden key takes it all.
  expect((await plain(page, "mask_as_number", /−10\s000/))[0]?.[2]).toBe("1.0000");
  const cap = (score: number) => 2 * Math.tanh(score / 2);
  const first = sigmoid(cap(1) - cap(2));
  expect(await numbers(page, "softcap_order", "weights")).toEqual([
    [shown(first), shown(1 - first), "0.0000"],
  ]);
  const leaked = await plain(page, "softcap_order", /^capped after/);
  const parts = [Math.exp(cap(1)), Math.exp(cap(2)), Math.exp(-2)];
  expect(Number(leaked[0]?.[2])).toBeCloseTo(
    (parts[2] as number) / parts.reduce((total, value) => total + value),
    4,
  );
});

test("groups are interleaved, and 0 is a scale", async ({ page }) => {
  await openCases(page);
  expect((await numbers(page, "grouped_heads", "output")).flat()).toEqual([
    "1.0000",
    "1.0000",
    "2.0000",
    "2.0000",
  ]);
  const third = shown(1 / 3);
  expect(await numbers(page, "zero_scale", "weights")).toEqual([[third, third, third]]);
  await pick(page, "zero_scale", "scale: NaN");
  await expect(page.getByTestId("case-zero_scale")).toContainText(/Refused: scale: got NaN/);
});

test("every answer agrees with the float64 reference, and every source is named", async ({
  page,
}) => {
  await openCases(page);
  const cases = page.getByTestId(/^case-/);
  const count = await cases.count();
  expect(count).toBeGreaterThanOrEqual(9);
  for (let index = 0; index < count; index++) {
    await expect(cases.nth(index).getByTestId("agreement")).toHaveText(/^0$|\s×\s10⁻[⁶-⁹]/);
    const sources = await cases
      .nth(index)
      .locator(".peers tbody tr td:last-child")
      .allTextContents();
    for (const source of sources) expect(source.trim()).not.toBe("");
  }
});

test("the table of passes is that of docs/conformance.md", async ({ page }) => {
  await page.goto("./edge_cases.html");
  const tables = [...readFileSync(DOCS, "utf8").matchAll(/^\| ([^|]+) \| (\d+) \| (\d+) \|/gm)];
  // Suites have a row each; what the mechanisms' authors compute is one row, the last.
  const [published, authors] = [false, true].map((ofAuthors) =>
    tables.filter(([, suite]) => suite?.startsWith("`") === ofAuthors),
  ) as [typeof tables, typeof tables];
  const sum = (of: typeof tables, column: 2 | 3) =>
    of.reduce((total, row) => total + Number(row[column]), 0);
  const written = [
    ...published.map(([, suite, cases, passed]) => [suite?.trim(), cases, passed]),
    ["what the authors’ own code computes", `${sum(authors, 2)}`, `${sum(authors, 3)}`],
  ];
  const rows = await page
    .getByTestId("conformance")
    .locator("tbody tr")
    .evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll("th, td")].map((cell) => cell.textContent ?? "")),
    );
  expect(rows.map(([suite, , cases, pass]) => [suite, cases, pass])).toEqual(written);
  await expect(page.getByText(`of ${sum(tables, 2)} pass`)).toBeVisible();
});
