// Training in the tab: each task is learned to the stated accuracy from a fixed seed, and what the page
// says of it is true.
import { readFile } from "node:fs/promises";
import type { Page } from "@playwright/test";
import { LEN as LETTERS } from "../../web/src/training/alignment/sequences.js";
import { RANKS } from "../../web/src/training/cards/hands.js";
import { LEN } from "../../web/src/training/copying/sequences.js";
import { COUNT } from "../../web/src/training/regression/samples.js";
import { test } from "./one_page.js";
import { expect } from "./page.js";

interface Point {
  step: number;
  loss: number;
  gradientNorm: number;
  milliseconds: number;
  width?: number;
}

interface Saved {
  settings: { task: string; mechanism: string; seed: number };
  kit: { threads: number };
  points: Point[];
  looks: { step: number; accuracy: number; heldOut?: number }[];
  look: { tokens: number[]; targets: number[]; guesses: number[]; heads: number[][] };
}

const button = (page: Page, name: string) => page.getByRole("button", { name, exact: true });
const status = (page: Page) => page.getByTestId("training-status");

async function open(page: Page, fragment = ""): Promise<void> {
  await page.goto(`./training.html${fragment}`);
  await expect(status(page)).toContainText("Not trained yet");
}

/** After so many steps training pauses by itself: copying, and the other tasks. */
const SCHEDULE = 400;
const SHORT = 300;
const WIDTH_STEPS = 200;

/** Trains until so many steps are done, then pauses unless that is the end. */
async function train(page: Page, steps: number, end = SCHEDULE): Promise<void> {
  await button(page, "Train").click();
  const number = async () => Number(await page.getByTestId("training").getAttribute("data-step"));
  await expect.poll(number, { timeout: 90_000, intervals: [250] }).toBeGreaterThanOrEqual(steps);
  if (steps < end) await button(page, "Pause").click();
  await expect(button(page, "Train")).toBeVisible();
}

/** What the page promises: on one thread, steps that take less than a minute together. */
function expectQuick({ kit, points }: Saved): void {
  expect(kit.threads).toBe(1);
  expect(points.reduce((sum, { milliseconds }) => sum + milliseconds, 0)).toBeLessThan(60_000);
}

/** The places of the largest weights, row by row. */
const peaksOf = (matrix: readonly number[], columns: number): number[] =>
  Array.from({ length: matrix.length / columns }, (_, row) => {
    const weights = matrix.slice(row * columns, (row + 1) * columns);
    return weights.indexOf(Math.max(...weights));
  });

async function saved(page: Page): Promise<Saved> {
  const download = page.waitForEvent("download");
  await page.getByTestId("training").getByRole("button", { name: "JSON", exact: true }).click();
  return JSON.parse(await readFile(await (await download).path(), "utf8"));
}

test("two layers learn to copy in the tab", async ({ page }) => {
  test.slow();
  await open(page);
  await train(page, SCHEDULE);
  const run = await saved(page);
  expectQuick(run);
  const { points, looks, look } = run;
  expect(points).toHaveLength(SCHEDULE);
  expect(points.map(({ step }) => step)).toEqual(points.map((_, n) => n + 1));
  expect(points[0]?.loss).toBeGreaterThan(2.5);
  expect(points.at(-1)?.loss).toBeLessThan(0.1);
  expect(looks[0]?.accuracy).toBeLessThan(0.2);
  expect(looks.at(-1)?.accuracy).toBeGreaterThanOrEqual(0.98);
  await expect(status(page)).toContainText(/(9[89]\.\d|100\.0)\s% of unseen letters right/);

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

for (const task of ["reverse", "sort"]) {
  test(`an alignment forms: ${task}`, async ({ page }) => {
    test.slow();
    await open(page, `#task=${task}`);
    await train(page, SHORT, SHORT);
    const run = await saved(page);
    expectQuick(run);
    const { points, looks, look } = run;
    expect(points).toHaveLength(SHORT);
    expect(looks[0]?.accuracy).toBeLessThan(0.2);
    expect(looks.at(-1)?.accuracy).toBeGreaterThanOrEqual(0.97);
    await expect(status(page)).toContainText(/(9[789]\.\d|100\.0)\s% of the letters/);

    const { tokens, targets, guesses } = look;
    expect(targets).toEqual(
      task === "reverse" ? tokens.toReversed() : tokens.toSorted((a, b) => a - b),
    );
    // The decoder looks at the letter that it writes: a diagonal the other way, or a permutation.
    const peaks = peaksOf(look.heads[0] as number[], LETTERS);
    const found = peaks.filter((place, row) => tokens[place] === guesses[row]);
    expect(found.length).toBeGreaterThanOrEqual(task === "reverse" ? LETTERS : LETTERS - 2);
    await expect(page.getByText(`in ${found.length} of ${LETTERS} rows`)).toBeVisible();
  });
}

test("an average cannot reverse, and neighbours leave it to the encoder", async ({ page }) => {
  test.slow();
  await open(page, "#task=reverse&mechanism=average");
  await train(page, SHORT, SHORT);
  expect((await saved(page)).looks.at(-1)?.accuracy).toBeLessThan(0.4);
  await button(page, "neighbours only").click();
  await expect(status(page)).toContainText("Not trained yet");
  await train(page, SHORT, SHORT);
  const { looks, look } = await saved(page);
  expect(looks.at(-1)?.accuracy).toBeGreaterThanOrEqual(0.97);
  // The cross head does not look at the letters that it writes; with the encoder's head before it, it does.
  const [cross, , encoder] = look.heads as [number[], number[], number[]];
  const both = Array.from({ length: LETTERS * LETTERS }, (_, cell) => {
    const [row, column] = [Math.floor(cell / LETTERS), cell % LETTERS];
    const through = (place: number) =>
      (cross[row * LETTERS + place] as number) * (encoder[place * LETTERS + column] as number);
    return Array.from({ length: LETTERS }, (_unused, place) => through(place)).reduce(
      (a, b) => a + b,
    );
  });
  const reversed = (matrix: number[]) =>
    peaksOf(matrix, LETTERS).filter((place, row) => place === LETTERS - 1 - row).length;
  expect(reversed(cross)).toBeLessThanOrEqual(2);
  expect(reversed(both)).toBeGreaterThanOrEqual(7);
});

test("attention pooling finds the card that is asked for, a mean does not", async ({ page }) => {
  test.slow();
  await open(page, "#task=cards");
  await train(page, SHORT, SHORT);
  const run = await saved(page);
  expectQuick(run);
  const { looks, look } = run;
  expect(looks[0]?.accuracy).toBeLessThan(0.2);
  expect(looks.at(-1)?.accuracy).toBeGreaterThanOrEqual(0.98);
  await expect(status(page)).toContainText(/(9[89]\.\d|100\.0)\s% of unseen hands/);
  const found = peaksOf(look.heads[0] as number[], RANKS.length).filter(
    (rank, row) => rank === row,
  );
  expect(found.length).toBeGreaterThanOrEqual(11);
  await expect(page.getByText(`in ${found.length} of 13 hands`)).toBeVisible();

  await button(page, "mean").click();
  await expect(status(page)).toContainText("Not trained yet");
  await train(page, SHORT, SHORT);
  expect((await saved(page)).looks.at(-1)?.accuracy).toBeLessThan(0.75);
});

test("a kernel finds its width, and loses it when samples see themselves", async ({ page }) => {
  await open(page, "#task=regression");
  // A pace at which the width is watched: ten a second, of the visitor's choice.
  await expect(button(page, "ten a second")).toHaveAttribute("aria-pressed", "true");
  await button(page, "as fast as it goes").click();
  await train(page, WIDTH_STEPS, WIDTH_STEPS);
  const run = await saved(page);
  expectQuick(run);
  const { points, looks, look } = run;
  expect(points[0]?.width).toBeCloseTo(0.951, 2);
  const width = points.at(-1)?.width as number;
  expect(width).toBeGreaterThan(0.05);
  expect(width).toBeLessThan(0.2);
  expect(looks.at(-1)?.accuracy).toBeGreaterThanOrEqual(0.95);
  await expect(status(page)).toContainText(/9\d\.\d\s% of the curve’s variance explained/);
  // No sample takes anything of itself, and the weights of each sum to 1.
  const weights = look.heads[0] as number[];
  for (let row = 0; row < COUNT; row++) {
    const own = weights.slice(row * COUNT, (row + 1) * COUNT);
    expect(own[row]).toBe(0);
    expect(own.reduce((a, b) => a + b)).toBeCloseTo(1, 4);
  }

  await button(page, "gaussian, sees itself").click();
  await expect(status(page)).toContainText("Not trained yet");
  await train(page, WIDTH_STEPS, WIDTH_STEPS);
  const itself = await saved(page);
  expect(itself.points.at(-1)?.loss).toBeLessThan(0.3 * (points.at(-1)?.loss as number));
  expect(itself.points.at(-1)?.width).toBeLessThan(width / 3);
  expect(itself.looks.at(-1)?.heldOut).toBeGreaterThan(1.1 * (looks.at(-1)?.heldOut as number));
});

test("every way to weight samples takes a step", async ({ page }) => {
  await open(page, "#task=regression");
  const group = page.getByRole("group", { name: "Kernel" });
  for (const choice of await group.getByRole("button").all()) {
    await choice.click();
    await expect(status(page)).toContainText("Not trained yet");
    await button(page, "One step").click();
    await expect(status(page)).toContainText(/Step 1: loss 0\.\d+, /);
  }
});

test("a task is chosen, and is in the address", async ({ page }) => {
  await open(page);
  await button(page, "sorting").click();
  await expect(page.getByRole("heading", { level: 1 })).toContainText("sorting");
  await expect(status(page)).toContainText("Not trained yet");
  await expect(page).toHaveURL(/#task=sort$/);
  await button(page, "sigmoid").click();
  await expect(status(page)).toContainText("Not trained yet");
  await expect(page).toHaveURL(/#task=sort&mechanism=sigmoid$/);
  await button(page, "One step").click();
  await expect(status(page)).toContainText("Step 1:");
  await expect(page.getByRole("radiogroup", { name: "Heads" }).locator("canvas")).toHaveCount(3);
  // News of the step before do not reach the next task.
  await button(page, "fitting a curve").click();
  await expect(status(page)).toContainText("of the curve’s variance explained");
  await expect(status(page)).toContainText("Not trained yet");
  await expect(page.getByRole("heading", { name: "The fit", exact: true })).toBeVisible();
});

test("a window that is too short cannot copy", async ({ page }) => {
  test.slow();
  await open(page, "#mechanism=window");
  await train(page, 150);
  const { settings, looks } = await saved(page);
  expect(settings).toEqual({ task: "copy", mechanism: "window", seed: 1 });
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
  await page.getByRole("spinbutton", { name: "Seed of weights and examples" }).fill("7");
  await page.keyboard.press("Enter");
  await expect(status(page)).toContainText("Not trained yet");
  await expect(page).toHaveURL(/#seed=7$/);
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
  await open(page, "#task=toString&mechanism=nonsense&seed=-3");
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

test("a link shows a head, a cell and a plot; another cell leaves what is trained", async ({
  page,
}) => {
  await open(page, "#task=cards&plot=accuracy&head=2&pin=3,4");
  await expect(page.getByRole("button", { name: "Accuracy", exact: true })).toHaveAttribute(
    "aria-pressed",
    "true",
  );
  const figure = page.getByRole("region", { name: "The pooling weights as they form" });
  await expect(figure.getByRole("heading", { name: "Head 1", exact: true })).toBeVisible();
  const asked = (row: number) => new RegExp(`^Head\\s1: .*asked “${RANKS[row - 1]}\\?”`);
  await expect(figure.getByTestId("readout")).toHaveText(asked(3));
  await button(page, "One step").click();
  await expect(page.getByTestId("training")).toHaveAttribute("data-step", "1");
  await page.evaluate(() => {
    location.hash = "#task=cards&plot=accuracy&head=2&pin=2,2";
  });
  await expect(figure.getByTestId("readout")).toHaveText(asked(2));
  await expect(page.getByTestId("training")).toHaveAttribute("data-step", "1");
  await figure.getByRole("application").focus();
  await page.keyboard.press("Escape");
  await expect(page).toHaveURL(/#task=cards&plot=accuracy&head=2$/);
  await page.getByRole("button", { name: "copying", exact: true }).click();
  await expect(page).toHaveURL(/training\.html$/);
});
