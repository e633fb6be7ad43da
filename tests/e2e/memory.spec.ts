// Pages of recurrent mechanisms: table, read-out, controls and link belong together. That the numbers are right
// is in tests/js/memory_figures.test.ts.
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

const FADING = [
  ["gated_linear", "What a full stop leaves", "0.1"],
  ["mamba2", "What a full stop leaves", "0.1"],
  ["hgrn2", "How much a token rewrites", "1"],
  ["rwkv6", "What a full stop leaves", "0.1"],
  ["rwkv7", "What a token leaves, fastest channel", "0.3"],
  ["gated_delta_rule", "What a token leaves α", "0.6"],
  ["kimi_delta", "What a token leaves, slowest channel", "0.6"],
  ["lightning", "Head", "1"],
  ["log_linear", "What a token leaves", "0.5"],
] as const;

for (const [id, label, value] of FADING) {
  test(`${id}: less of a token is left when more is forgotten`, async ({ page }) => {
    await page.goto(`./mechanisms/${id}.html`);
    const crafted = page.getByTestId("crafted");
    await expect(crafted).toHaveAttribute("aria-busy", "false");
    await crafted.getByRole("slider", { name: "Read so far" }).fill("11");
    await crafted.getByRole("slider", { name: "Token that is followed" }).fill("4");
    const slider = crafted.getByRole("slider", { name: label }).first();
    const left: number[] = [];
    for (const to of [null, value]) {
      if (to) await slider.fill(to);
      const rows = await tableOf(page);
      expect(rows).toHaveLength(12);
      expect(rows[3]?.[0]).toBe("4 red");
      expect(toNumber(rows[11]?.[1])).toBeCloseTo(100, 1);
      const readout = (await crafted.getByTestId("readout").textContent()) ?? "";
      const [, percent] =
        readout.match(/^After 12 tokens ([\d.]+)\s% of the trace of “red” \(4\)/) ?? [];
      expect(Math.abs(toNumber(percent) - toNumber(rows[3]?.[1]))).toBeLessThan(0.06);
      left.push(toNumber(rows[3]?.[1]));
    }
    expect(left[1]).toBeLessThan(left[0] as number);
    const text = (await crafted.getByTestId("readout").textContent()) ?? "";
    await expect(page).toHaveURL(/figure\.read-so-far=11/);
    await expect(page).toHaveURL(/figure\.token-that-is-followed=4/);
    await expect(page).toHaveURL(new RegExp(`figure\\.[^=]+=${value.replace(".", "\\.")}(&|$)`));
    const link = page.url();
    await leave(page);
    await page.goto(link);
    await expect(crafted.getByTestId("readout")).toHaveText(text);
  });
}

test("cosformer and based: weights beside those of softmax, each row sums to 1", async ({
  page,
}) => {
  for (const [id, label, far] of [
    ["cosformer", "Distance of weight 0", "64"],
    ["based", "Size of the scores", "8"],
  ] as const) {
    await page.goto(`./mechanisms/${id}.html`);
    const crafted = page.getByTestId("crafted");
    await expect(crafted).toHaveAttribute("aria-busy", "false");
    for (const to of [null, far]) {
      if (to) await crafted.getByRole("slider", { name: label }).fill(to);
      const rows = await tableOf(page);
      expect(rows).toHaveLength(13);
      for (const column of [2, 3]) {
        const sum = rows.reduce((total, cells) => total + toNumber(cells[column]), 0);
        expect(sum).toBeCloseTo(1, 2);
      }
    }
  }
});
