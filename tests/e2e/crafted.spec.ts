// Crafted pages of exact attention, its scores and its weights: tables against plain float64 loops made here.
// Inputs are the pages' own; nothing that computes is shared. That every page agrees with the reference is in
// every_page.spec.ts.
import { HEAD_DIM, projectTokens } from "../../web/src/lib/vectors.js";
import { GRID, START } from "../../web/src/mechanisms/additive/surface.js";
import { SCORES as CAPPED } from "../../web/src/mechanisms/attention/softcap.js";
import {
  DIM as FLASH_DIM,
  KEYS,
  K as LONG_K,
  Q as LONG_Q,
} from "../../web/src/mechanisms/flash/tiles.js";
import { KEY, QUERY } from "../../web/src/mechanisms/rope/turning.js";
import { SCORES } from "../../web/src/mechanisms/sink/row.js";
import { FACTORS, SCORES as LEVELS } from "../../web/src/mechanisms/sparsemax/sharpness.js";
import { dot, openTable, readFigure, rowOf, slide, softmax, toNumber } from "./crafted_page.js";
import { test } from "./one_page.js";
import { expect } from "./page.js";

test("scaled dot product: heads are softmax of q·k, in the order of their entropy", async ({
  page,
}) => {
  await page.goto("./mechanisms/scaled_dot_product.html");
  await page.getByLabel("Sentence, up to 24 tokens").fill("one two three");
  await page.getByRole("radio", { name: /The word before, T = 2/ }).check({ force: true });
  const { q, k } = projectTokens(["one", "two", "three"]);
  const rows = await readFigure(page);
  const at = 3 * HEAD_DIM;
  rows.forEach((row, i) => {
    const scores = [0, 1, 2].map(
      (j) => dot(rowOf(q.subarray(at), i, HEAD_DIM), rowOf(k.subarray(at), j, HEAD_DIM)) / 4 / 2,
    );
    softmax(scores).forEach((wanted, j) => {
      expect(Math.abs(toNumber(row[j + 1] as string) - wanted)).toBeLessThan(1e-4);
    });
  });
  const numbers = async (unit: RegExp) =>
    (
      await page
        .getByTestId("crafted")
        .getByRole("radiogroup", { name: "Heads" })
        .getByText(unit)
        .allTextContents()
    ).map(parseFloat);
  const sorted = await numbers(/ bits$/);
  expect(sorted).toHaveLength(12);
  expect(sorted).toEqual([...sorted].sort((a, b) => a - b));
  const order = (name: string) =>
    page.getByTestId("crafted").getByRole("button", { name, exact: true }).click();
  await order("By distance");
  const near = await numbers(/ tokens$/);
  expect(near).toHaveLength(12);
  expect(near).toEqual([...near].sort((a, b) => a - b));
  await order("In order");
  expect(await numbers(/ bits$/)).not.toEqual(sorted);
});

test("flash: running maximum, rescale and sum of every tile", async ({ page }) => {
  const rows = await openTable(page, "flash");
  const scores = Array.from(
    { length: KEYS },
    (_, j) => 0.25 * dot(LONG_Q.data, rowOf(LONG_K.data, j, FLASH_DIM)),
  );
  let [max, sum] = [Number.NEGATIVE_INFINITY, 0];
  rows.forEach((row, tile) => {
    const own = scores.slice(tile * 256, (tile + 1) * 256);
    const next = Math.max(max, ...own);
    sum =
      sum * (tile === 0 ? 0 : Math.exp(max - next)) +
      own.reduce((s, x) => s + Math.exp(x - next), 0);
    max = next;
    expect(Math.abs(toNumber(row[2] as string) - max)).toBeLessThan(1e-3);
    expect(Math.abs(toNumber(row[4] as string) - sum)).toBeLessThan(1e-2);
  });
  expect(rows).toHaveLength(KEYS / 256);
  // With large scores the sum without a maximum leaves float32, the kernel's does not.
  await slide(page, "Scale", 12);
  const large = await readFigure(page);
  expect(large.at(-1)?.[5]).toBe("overflow");
  expect(toNumber(large.at(-1)?.[4] as string)).toBeGreaterThanOrEqual(1);
});

test("flash: scrubbing and clicking choose the tile that is read out", async ({ page }) => {
  await page.goto("./mechanisms/flash.html");
  const crafted = page.getByTestId("crafted");
  await slide(page, "After tile", 0);
  await expect(crafted.getByTestId("readout")).toContainText(
    "Tile 1, keys 1 to 256: the first maximum is",
  );
  await crafted.getByRole("button", { name: "Forward" }).click();
  await expect(crafted.getByTestId("readout")).toContainText("Tile 2, keys 257 to 512");
  await slide(page, "After tile", 7);
  await expect(crafted.getByRole("button", { name: "Forward" })).toBeDisabled();
});

test("additive: the surface is v tanh(W_q q + W_k k + b), one unit or two", async ({ page }) => {
  for (const units of [1, 2]) {
    await page.goto("./mechanisms/additive.html");
    await page.getByRole("button", { name: units === 1 ? "One unit" : "Two units" }).click();
    await slide(page, "Bias", 1);
    const rows = await readFigure(page);
    rows.forEach((row, i) => {
      GRID.forEach((key, j) => {
        const sum = START.queryWeight * (GRID[i] as number) + START.keyWeight * key;
        const second = units === 2 ? Math.tanh(sum - 1) : 0;
        const truth = START.vector * (Math.tanh(sum + 1) - second);
        expect(Math.abs(toNumber(row[j + 1] as string) - truth)).toBeLessThan(1e-3);
      });
    });
    expect(rows).toHaveLength(GRID.length);
  }
});

test("exact attention: what softcap makes of scores and weights", async ({ page }) => {
  await page.goto("./mechanisms/attention.html");
  await slide(page, "Cap", 20);
  const rows = await readFigure(page);
  const bent = CAPPED.map((score) => 20 * Math.tanh(score / 20));
  const weights = softmax(bent);
  const plain = softmax(CAPPED);
  expect(rows).toHaveLength(CAPPED.length);
  rows.forEach((row, key) => {
    expect(Math.abs(toNumber(row[2] as string) - (bent[key] as number))).toBeLessThan(1e-3);
    expect(Math.abs(toNumber(row[3] as string) - (weights[key] as number))).toBeLessThan(1e-4);
    expect(Math.abs(toNumber(row[4] as string) - (plain[key] as number))).toBeLessThan(1e-4);
  });
});

test("rope: the product depends on the distance, wherever the tokens stand", async ({ page }) => {
  const pairs = [0, 1, 2, 3];
  const product = (distance: number) =>
    pairs.reduce((sum, pair) => {
      const angle = distance * 100 ** (-pair / 4);
      const [qx, qy, kx, ky] = [QUERY[pair], QUERY[pair + 4], KEY[pair], KEY[pair + 4]] as number[];
      const [x, y] = [
        (qx as number) * Math.cos(angle) - (qy as number) * Math.sin(angle),
        (qx as number) * Math.sin(angle) + (qy as number) * Math.cos(angle),
      ];
      return sum + x * (kx as number) + y * (ky as number);
    }, 0);
  await page.goto("./mechanisms/rope.html");
  for (const offset of [0, 500]) {
    await slide(page, "Move all positions", offset);
    const rows = await readFigure(page);
    expect(rows).toHaveLength(48);
    rows.forEach((row, distance) => {
      expect(Math.abs(toNumber(row[1] as string) - product(distance))).toBeLessThan(3e-4);
    });
  }
});

test("sink and softmax off by one: weights and what goes nowhere", async ({ page }) => {
  for (const [id, shift, logit] of [
    ["sink", -1, 1.5],
    ["softmax1", 2, 0],
  ] as const) {
    await page.goto(`./mechanisms/${id}.html`);
    await slide(page, "Added to every score", shift);
    if (id === "sink") await slide(page, "Logit of the sink", logit);
    const rows = await readFigure(page);
    const exps = SCORES.map((score) => Math.exp(score + shift));
    const total = Math.exp(logit) + exps.reduce((sum, value) => sum + value, 0);
    const wanted = [...exps, Math.exp(logit)].map((value) => value / total);
    expect(rows).toHaveLength(wanted.length);
    rows.forEach((row, at) => {
      expect(Math.abs(toNumber(row[3] as string) - (wanted[at] as number))).toBeLessThan(1e-4);
    });
  }
});

/** The threshold t for which the sum of weight(score - t) is 1, by bisection. */
function threshold(scores: readonly number[], weight: (above: number) => number): number {
  let [low, high] = [Math.min(...scores) - 2, Math.max(...scores)];
  for (let step = 0; step < 100; step++) {
    const middle = (low + high) / 2;
    const sum = scores.reduce((total, score) => total + weight(Math.max(0, score - middle)), 0);
    if (sum > 1) low = middle;
    else high = middle;
  }
  return low;
}

test("sparsemax and 1.5-entmax: weights above a threshold, exactly zero below", async ({
  page,
}) => {
  for (const [id, half, power] of [
    ["sparsemax", 1, 1],
    ["entmax15", 0.5, 2],
  ] as const) {
    await page.goto(`./mechanisms/${id}.html`);
    await slide(page, "Scores multiplied by", 38);
    const scores = LEVELS.map((score) => half * (FACTORS[38] as number) * score);
    const weight = (above: number) => above ** power;
    const limit = threshold(scores, weight);
    const wanted = scores.map((score) => weight(Math.max(0, score - limit)));
    expect(wanted.filter((value) => value === 0).length).toBeGreaterThan(0);
    const rows = await readFigure(page);
    expect(rows).toHaveLength(LEVELS.length);
    rows.forEach((row, at) => {
      expect(Math.abs(toNumber(row[2] as string) - (wanted[at] as number)), id).toBeLessThan(1e-4);
    });
  }
});
