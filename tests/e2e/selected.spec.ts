// Pages of mechanisms that choose keys: tables, read-outs, controls and links belong together. That the numbers
// are right is in tests/js/selected_figures.test.ts.
import type { Page } from "@playwright/test";
import { test } from "./one_page.js";
import { expect, leave } from "./page.js";

const toNumber = (text: string | undefined) => Number(text?.replace("−", "-"));

async function tableOf(page: Page): Promise<string[][]> {
  const crafted = page.getByTestId("crafted");
  const toggle = crafted.getByLabel("Show as table").first();
  await toggle.check();
  await expect(crafted.locator("tbody tr").first()).toBeVisible();
  const rows = await crafted
    .locator("tbody tr")
    .evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll("th, td")].map((cell) => cell.textContent ?? "")),
    );
  await toggle.uncheck();
  return rows;
}

const PAGES = [
  ["block_mixture", "Blocks that are read", true],
  ["quest", "Pages that are read", true],
  ["indexed", "Keys that are read", true],
  ["streaming", "Last tokens that are kept", false],
  ["heavy_hitter", "Older tokens that are kept", true],
  ["native_sparse", "Blocks that are chosen", true],
  ["routing", "Tokens in a cluster", true],
] as const;

for (const [id, budget, hasScores] of PAGES) {
  test(`${id}: the keys that are read hold the weight that the read-out says`, async ({ page }) => {
    await page.goto(`./mechanisms/${id}.html`);
    const crafted = page.getByTestId("crafted");
    await expect(crafted).toHaveAttribute("aria-busy", "false");
    const slider = crafted.getByRole("slider", { name: budget });
    await crafted.getByRole("slider", { name: "Query" }).fill("48");
    const shares: number[] = [];
    for (const value of [await slider.inputValue(), (await slider.getAttribute("max")) ?? ""]) {
      await slider.fill(value);
      const rows = await tableOf(page);
      expect(rows).toHaveLength(49);
      expect(rows.every((cells) => cells.length === (hasScores ? 6 : 5))).toBe(true);
      expect(rows.flat()).not.toContain("not a number");
      const read = rows.filter((cells) => cells[2] === "yes");
      const share = 100 * read.reduce((sum, cells) => sum + toNumber(cells[4]), 0);
      const own = rows.reduce((sum, cells) => sum + toNumber(cells[3]), 0);
      expect(own).toBeCloseTo(1, 3);
      const readout = (await crafted.getByTestId("readout").textContent()) ?? "";
      const [, number, keys, percent] =
        readout.match(/^Query (\d+) .*reads (\d+) of 49 keys, which hold ([\d.]+)\s%/) ?? [];
      expect([number, keys]).toEqual(["49", String(read.length)]);
      expect(Math.abs(toNumber(percent) - share)).toBeLessThan(0.2);
      shares.push(share);
    }
    expect(shares[1]).toBeGreaterThan(shares[0] as number);
    // The link says query and budget, and brings them back.
    const most = await slider.inputValue();
    const text = (await crafted.getByTestId("readout").textContent()) ?? "";
    const name = budget.toLowerCase().replaceAll(" ", "-");
    await expect(page).toHaveURL(/figure\.query=48/);
    await expect(page).toHaveURL(new RegExp(`figure\\.${name}=${most}(&|$)`));
    const link = page.url();
    await leave(page);
    await page.goto(link);
    await expect(slider).toHaveValue(most);
    await expect(crafted.getByTestId("readout")).toHaveText(text);
  });
}

test("the query of a row is chosen by key", async ({ page }) => {
  await page.goto("./mechanisms/streaming.html");
  const crafted = page.getByTestId("crafted");
  await expect(crafted).toHaveAttribute("aria-busy", "false");
  await crafted.getByRole("application").focus();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "Enter"])
    await page.keyboard.press(key);
  await expect(crafted.getByRole("slider", { name: "Query" })).toHaveValue("2");
  await expect(crafted.getByTestId("readout")).toContainText(
    "reads 3 of 3 keys, which hold 100.0 %",
  );
});

test("native_sparse: summaries are not keys that are read, and have no share", async ({ page }) => {
  await page.goto("./mechanisms/native_sparse.html");
  const crafted = page.getByTestId("crafted");
  await expect(crafted).toHaveAttribute("aria-busy", "false");
  const [readout, budgets] = [
    crafted.getByTestId("readout"),
    crafted.getByText("What other budgets"),
  ];
  await expect(readout).toContainText("of its exact weight");
  await expect(budgets).toBeVisible();
  for (const branch of ["summaries", "all three alike"]) {
    await crafted.getByRole("button", { name: branch }).click();
    await expect(readout).toContainText("stands on keys that are not read for it");
    await expect(budgets).toHaveCount(0);
    expect((await tableOf(page)).every((cells) => cells.length === 5)).toBe(true);
  }
  // Sliders say where they change nothing.
  const idle = crafted.getByText("changes nothing in what is shown");
  await expect(idle).toHaveCount(0);
  await crafted.getByRole("button", { name: "summaries" }).click();
  await expect(idle).toHaveCount(2);
});

test("routing: a query of no cluster reads no key, and its keys have no nearness", async ({
  page,
}) => {
  await page.goto("./mechanisms/routing.html#v=1&figure.tokens-in-a-cluster=4&figure.query=50");
  const crafted = page.getByTestId("crafted");
  await expect(crafted).toHaveAttribute("aria-busy", "false");
  await expect(crafted.getByTestId("readout")).toContainText("Query 51 (“bread”) reads no key.");
  const rows = await tableOf(page);
  expect(rows).toHaveLength(51);
  expect(rows.every((cells) => cells.length === 6 && cells[2] === "no" && cells[5] === "")).toBe(
    true,
  );
});
