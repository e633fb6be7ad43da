// Pages of mechanisms with compressed keys, and of sorted blocks: table, read-out, controls and link belong
// together. That the numbers are right is in tests/js/ranked_figures.test.ts and sorting_figure.test.ts.
import { test } from "./one_page.js";
import { expect, leave } from "./page.js";

const PAGES = [
  ["linformer", "Compressed keys", "64", 64],
  ["nystrom", "Landmarks", "64", 64],
  ["memory_compressed", "Tokens in a compressed key", "1", 64],
  ["efficient", "Channels of queries and keys", "3", 3],
] as const;

for (const [id, label, value, keys] of PAGES) {
  test(`${id}: the error is that of its number of compressed keys`, async ({ page }) => {
    await page.goto(`./mechanisms/${id}.html`);
    const crafted = page.getByTestId("crafted");
    await expect(crafted).toHaveAttribute("aria-busy", "false");
    const first = (await crafted.getByTestId("readout").textContent()) ?? "";
    await crafted.getByRole("slider", { name: label }).fill(value);
    const readout = crafted.getByTestId("readout");
    await expect(readout).toContainText(`${keys} compressed keys in place of 64`);
    expect(await readout.textContent()).not.toBe(first);
    const text = (await readout.textContent()) ?? "";
    const [, error, best] = text.match(/off by ([\d.]+)\s%.* off by ([\d.]+)\s%/) ?? [];
    await crafted.getByLabel("Show as table").first().check();
    const row = crafted
      .locator("tbody tr")
      .filter({ has: page.getByRole("rowheader", { name: String(keys), exact: true }) });
    const cells = await row.locator("td").allTextContents();
    // One decimal in the read-out, two in the table.
    expect(Math.abs(Number(cells[0]) - Number(error))).toBeLessThan(0.06);
    expect(Math.abs(Number(cells[1]) - Number(best))).toBeLessThan(0.06);
    expect(Number(cells[0])).toBeGreaterThan(Number(cells[1]) - 0.01);
    await crafted.getByLabel("Show as table").first().uncheck();
    // A cell is pinned by key, and the link brings it back.
    await crafted.getByRole("application").first().focus();
    for (const key of ["ArrowDown", "ArrowRight", "Enter"]) await page.keyboard.press(key);
    await expect(readout).toContainText("Query 1, key 2:");
    await expect(page).toHaveURL(/figure\.pin=1(,|%2C)2/);
    const pinned = (await readout.textContent()) ?? "";
    const link = page.url();
    await leave(page);
    await page.goto(link);
    await expect(readout).toHaveText(pinned);
  });
}

test("sinkhorn: the table's columns sum to 1, and a cold sorting brings one block", async ({
  page,
}) => {
  await page.goto("./mechanisms/sinkhorn.html");
  const crafted = page.getByTestId("crafted");
  await expect(crafted).toHaveAttribute("aria-busy", "false");
  const largest: number[] = [];
  for (const temperature of ["3", "0.1"]) {
    await crafted.getByRole("slider", { name: "Temperature of sorting" }).fill(temperature);
    await crafted.getByLabel("Show as table").check();
    const rows = await crafted
      .locator("tbody tr")
      .evaluateAll((all) =>
        all.map((row) => [...row.querySelectorAll("td")].map((cell) => Number(cell.textContent))),
      );
    await crafted.getByLabel("Show as table").uncheck();
    expect(rows).toHaveLength(8);
    for (let block = 0; block < 8; block++) {
      const sum = rows.reduce((total, cells) => total + (cells[block] as number), 0);
      expect(sum).toBeCloseTo(1, 2);
      expect(rows[block]?.[block]).toBeCloseTo(0, 3);
    }
    largest.push(Math.max(...(rows[0] ?? []).slice(0, 8)));
  }
  expect(largest[1]).toBeGreaterThan(largest[0] as number);
});

test("maps of parts, states and sorted weights say what is in a cell", async ({ page }) => {
  for (const [id, map, said] of [
    ["linformer", /^What compressed keys are made of/, /Compressed key 2 has 0\.\d+ of token 2\./],
    [
      "gated_linear",
      /^State after 13 tokens/,
      /Channel 2, after 13 tokens: −?\d\.\d+ of “has” \(2\)/,
    ],
    ["log_linear", /^State after 13 tokens/, /Block of 2, after 13 tokens: \d\.\d+ of “has” \(2\)/],
    ["cosformer", /^State after 13 tokens/, /Channel 2, after 13 tokens: −?\d\.\d+ of “has” \(2\)/],
    ["sinkhorn", /^Weights of 64 queries/, /Query 2, key 2: weight 0\.\d+\./],
  ] as const) {
    await page.goto(`./mechanisms/${id}.html`);
    const crafted = page.getByTestId("crafted");
    await expect(crafted).toHaveAttribute("aria-busy", "false");
    await crafted.getByRole("application", { name: map }).focus();
    for (const key of ["ArrowDown", "ArrowDown", "ArrowRight"]) await page.keyboard.press(key);
    await expect(crafted.getByTestId("readout"), id).toContainText(said);
    await page.keyboard.press("Escape");
    await expect(crafted.getByTestId("readout"), id).not.toContainText(said);
  }
});
