// Training in the tab: copying is learned to the stated accuracy from a fixed seed, and what the page
// says of it is true.
import { readFile } from "node:fs/promises";
import type { Page } from "@playwright/test";
import { LEN } from "../../web/src/training/task.js";
import { expect, test } from "./page.js";

interface Saved {
  settings: { mechanism: string; seed: number };
  points: { step: number; loss: number; gradientNorm: number }[];
  looks: { step: number; accuracy: number }[];
  look: { tokens: number[]; targets: number[]; guesses: number[]; heads: number[][] };
}

const button = (page: Page, name: string) => page.getByRole("button", { name, exact: true });
const status = (page: Page) => page.getByTestId("training-status");

async function open(page: Page, fragment = ""): Promise<void> {
  await page.goto(`./training.html${fragment}`);
  await expect(status(page)).toContainText("Not trained yet");
}

/** After so many steps training pauses by itself. */
const SCHEDULE = 400;

/** Trains until so many steps are done, then pauses. */
async function train(page: Page, steps: number): Promise<void> {
  await button(page, "Train").click();
  const number = async () => Number(await page.getByTestId("training").getAttribute("data-step"));
  await expect.poll(number, { timeout: 90_000, intervals: [250] }).toBeGreaterThanOrEqual(steps);
  if (steps < SCHEDULE) await button(page, "Pause").click();
  await expect(button(page, "Train")).toBeVisible();
}

async function saved(page: Page): Promise<Saved> {
  const download = page.waitForEvent("download");
  await page.getByTestId("training").getByRole("button", { name: "JSON", exact: true }).click();
  return JSON.parse(await readFile(await (await download).path(), "utf8"));
}

test("two layers learn to copy in the tab", async ({ page }) => {
  test.slow();
  await open(page);
  await train(page, SCHEDULE);
  const { points, looks, look } = await saved(page);
  expect(points).toHaveLength(SCHEDULE);
  expect(points.map(({ step }) => step)).toEqual(points.map((_, n) => n + 1));
  expect(points[0]?.loss).toBeGreaterThan(2.5);
  expect(points.at(-1)?.loss).toBeLessThan(0.1);
  expect(looks[0]?.accuracy).toBeLessThan(0.2);
  expect(looks.at(-1)?.accuracy).toBeGreaterThanOrEqual(0.98);
  await expect(status(page)).toContainText(/(9[89]\.\d|100\.0) % of unseen letters right/);

  // What a letter is followed by is what followed it before: no model is needed to know it.
  look.tokens.forEach((token, place) => {
    const before = look.tokens.lastIndexOf(token, place - 1);
    const next = place > 0 && before >= 0 ? look.tokens[before + 1] : -1;
    if (next !== -1) expect(look.targets[place]).toBe(next);
  });
  const wrong = look.targets.filter((target, n) => target >= 0 && target !== look.guesses[n]);
  await expect(page.locator("td.wrong")).toHaveCount(wrong.length);

  // Each head's rows are weights: of visible letters alone, and they sum to 1.
  for (const layer of look.heads) {
    for (let row = 0; row < layer.length; row += LEN) {
      const weights = layer.slice(row, row + LEN);
      const place = (row / LEN) % LEN;
      expect(weights.slice(place + 1).every((weight) => weight === 0)).toBe(true);
      expect(weights.reduce((a, b) => a + b)).toBeCloseTo(1, 4);
    }
  }
});

test("a window that is too short cannot copy", async ({ page }) => {
  test.slow();
  await open(page, "#mechanism=window");
  await train(page, 150);
  const { settings, looks } = await saved(page);
  expect(settings).toEqual({ mechanism: "window", seed: 1 });
  expect(looks.at(-1)?.accuracy).toBeLessThan(0.6);
});

test("the same seed gives the same losses, another one others", async ({ page }) => {
  const losses = async () => {
    for (let step = 1; step <= 3; step++) {
      await button(page, "One step").click();
      await expect(status(page)).toContainText(`Step ${step}:`);
    }
    return (await saved(page)).points.map(({ loss }) => loss);
  };
  await open(page);
  const first = await losses();
  await button(page, "Start over").click();
  await expect(status(page)).toContainText("Not trained yet");
  expect(await losses()).toEqual(first);
  await page.getByRole("spinbutton", { name: "Seed of weights and batches" }).fill("7");
  await page.keyboard.press("Enter");
  await expect(status(page)).toContainText("Not trained yet");
  expect(page.url()).toMatch(/#seed=7$/);
  expect(await losses()).not.toEqual(first);
});

test("starting over while it trains begins at the first step", async ({ page }) => {
  await open(page);
  await button(page, "Train").click();
  await expect(status(page)).toContainText(/Step \d+:/);
  await button(page, "Start over").click();
  await expect(status(page)).toContainText("Not trained yet");
  expect((await saved(page)).points).toEqual([]);
  await button(page, "One step").click();
  await expect(status(page)).toContainText("Step 1:");
  expect((await saved(page)).points.map(({ step }) => step)).toEqual([1]);
});

test("every mechanism takes a step and shows its heads", async ({ page }) => {
  test.slow();
  await open(page);
  const group = page.getByRole("group", { name: "Mechanism of all heads" });
  for (const choice of await group.getByRole("button").all()) {
    await choice.click();
    await expect(status(page)).toContainText("Not trained yet");
    await button(page, "One step").click();
    await expect(status(page)).toContainText("Step 1: loss");
    await expect(page.getByRole("radiogroup", { name: "Heads" }).locator("canvas")).toHaveCount(8);
  }
});

test("a link that says nonsense begins as by default", async ({ page }) => {
  await open(page, "#mechanism=nonsense&seed=-3");
  await expect(button(page, "softmax")).toHaveAttribute("aria-pressed", "true");
  await expect(page.getByRole("spinbutton")).toHaveValue("1");
});

test("the last picture of a slow pace comes with the pause", async ({ page }) => {
  await open(page);
  await button(page, "one a second").click();
  await button(page, "Train").click();
  await expect(status(page)).toContainText("Step 1:");
  await button(page, "Pause").click();
  await expect(status(page)).toContainText(/Step (\d+): .*\(at step \1\)/);
});
