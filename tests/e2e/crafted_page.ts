// What tests of crafted pages share: a page's table, its sliders, and plain loops to compare it with.
import type { Page } from "@playwright/test";
import { expect, numberOf } from "./page.js";

export const toNumber = numberOf;

/** Opens a crafted page, waits for its numbers, and returns the rows of its table. */
export async function openTable(page: Page, id: string): Promise<string[][]> {
  await page.goto(`./mechanisms/${id}.html`);
  return readFigure(page);
}

export async function readFigure(page: Page): Promise<string[][]> {
  const crafted = page.getByTestId("crafted");
  const toggle = crafted.getByLabel("Show as table").first();
  await expect(crafted).toHaveAttribute("aria-busy", "false");
  await toggle.check();
  await expect(crafted.locator("tbody tr").first()).toBeVisible();
  await expect(crafted.getByText("Loading heed")).toHaveCount(0);
  const rows = await crafted
    .locator("figure table tbody tr")
    .evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll("th, td")].map((cell) => cell.textContent ?? "")),
    );
  await toggle.uncheck();
  return rows;
}

/** Drags nothing: sets a slider of the crafted part by its name. */
export const slide = (page: Page, name: string, value: number) =>
  page.getByTestId("crafted").getByRole("slider", { name }).fill(String(value));

export const dot = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((sum, value, at) => sum + value * (b[at] as number), 0);

export const rowOf = (all: ArrayLike<number>, row: number, width: number) =>
  Array.from({ length: width }, (_, at) => all[row * width + at] as number);

export function softmax(scores: readonly number[]): number[] {
  const top = Math.max(...scores);
  const exps = scores.map((score) => Math.exp(score - top));
  const sum = exps.reduce((total, value) => total + value, 0);
  return exps.map((value) => value / sum);
}
