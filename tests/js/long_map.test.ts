// The tiles of the site's long map beside plain float64 loops.
import { load } from "heed";
import { expect, test } from "vitest";
import { inspectRow } from "../../web/src/lib/row.js";
import {
  inside,
  levelOf,
  placesOf,
  scaledSight,
  TILE,
  tilesIn,
  topLevel,
  wholeSight,
} from "../../web/src/lib/tile_map.js";
import { DIM, LongHead, wander } from "../../web/src/mechanisms/scaled_dot_product/long.js";

const LENGTH = 4096;
const WHOLE = { level: 4, row: 0, column: 0 };
const never = async () => false;
const heed = await load({ threads: 1 });

/** The weights of one query of the causal head. */
function rowInFloat64(x: Float32Array, row: number): Float64Array {
  const scores = Float64Array.from({ length: row + 1 }, (_, key) => {
    let sum = 0;
    for (let d = 0; d < DIM; d++)
      sum += (x[row * DIM + d] as number) * (x[key * DIM + d] as number);
    return sum / Math.sqrt(DIM);
  });
  const top = scores.reduce((a, b) => Math.max(a, b));
  const total = scores.reduce((sum, score) => sum + Math.exp(score - top), 0);
  return scores.map((score) => Math.exp(score - top) / total);
}

test("a pixel of a full tile is the mean of the visible weights under it", async () => {
  const head = new LongHead(heed, LENGTH);
  const tile = await head.tile(WHOLE, 32, never);
  expect(tile).toMatchObject({ samples: 16, error: 0 });
  const x = wander(LENGTH);
  for (const y of [0, 1, 100, 255]) {
    const rows = Array.from({ length: 16 }, (_, at) => rowInFloat64(x, y * 16 + at));
    for (const column of [0, 1, 57, 100, 255]) {
      const seen = rows.flatMap((row) => [...row.subarray(column * 16, column * 16 + 16)]);
      const mean = seen.reduce((a, b) => a + b, 0) / seen.length;
      const found = tile?.values[y * TILE + column] as number;
      if (seen.length === 0) expect(found).toBeNaN();
      else expect(Math.abs(found / mean - 1), `${y} ${column}`).toBeLessThan(1e-4);
    }
  }
  head.dispose();
});

test("at the finest level a pixel is a weight, and a row is all that its query sees", async () => {
  const head = new LongHead(heed, LENGTH);
  const tile = await head.tile({ level: 0, row: 5, column: 2 }, 32, never);
  const row = 5 * TILE + 77;
  const wanted = rowInFloat64(wander(LENGTH), row);
  const { weights } = await head.row(row);
  expect(weights).toHaveLength(row + 1);
  for (const column of [0, 1, 200, 255]) {
    const weight = wanted[2 * TILE + column] as number;
    expect((tile?.values[77 * TILE + column] as number) / weight).toBeCloseTo(1, 4);
    expect((weights[2 * TILE + column] as number) / weight).toBeCloseTo(1, 4);
  }
  head.dispose();
});

test("estimates lean to no side, and their error is what the page says", async () => {
  const head = new LongHead(heed, LENGTH);
  const exact = (await head.tile(WHOLE, 32, never))?.values as Float32Array;
  for (const most of [2, 8]) {
    const guess = await head.tile(WHOLE, most, never);
    let [apart, signed, all] = [0, 0, 0];
    guess?.values.forEach((value, pixel) => {
      if (Number.isNaN(value)) return;
      apart += Math.abs(value - (exact[pixel] as number));
      signed += value - (exact[pixel] as number);
      all += exact[pixel] as number;
    });
    expect(guess?.samples).toBe(most);
    expect(Math.abs(signed / all)).toBeLessThan(0.05);
    expect(apart / all).toBeLessThan(1.25 * (guess?.error ?? 0));
    expect(apart / all).toBeGreaterThan(0.2 * (guess?.error ?? 0));
  }
  head.dispose();
});

test("a tile that is no longer wanted is given up", async () => {
  const head = new LongHead(heed, LENGTH);
  let pauses = 0;
  expect(await head.tile(WHOLE, 8, async () => ++pauses > 3)).toBeNull();
  expect(pauses).toBe(4);
  head.dispose();
});

test("what is looked at on a level is looked at again on the next finer one", () => {
  for (const axis of ["rows", "columns"] as const) {
    const places = (level: number, row: number) =>
      placesOf(axis, { level, row, column: row }, 8, 100_000);
    const coarse = places(6, 0);
    const fine = new Set([...places(5, 0), ...places(5, 1)]);
    expect(coarse).toHaveLength(TILE * 8);
    expect(coarse.every((place, at) => Math.floor(place / 8) === at && fine.has(place))).toBe(true);
  }
});

test("tiles cover what is in sight, from the middle, and none of what is hidden", () => {
  const box = { width: 540, height: 540 };
  const whole = wholeSight(100_000, box);
  expect(levelOf(whole.scale, 100_000)).toBe(8);
  expect(tilesIn(whole, 100_000, box)).toHaveLength(3);
  const closer = inside(scaledSight(whole, 1 / 64, 100, 400), 100_000, box);
  const tiles = tilesIn(closer, 100_000, box);
  const { level } = tiles[0] as { level: number };
  expect(level).toBe(2);
  expect(tiles.length).toBeLessThan(25);
  const span = TILE * 2 ** level;
  const middle = closer.top + 270 * closer.scale;
  expect(Math.abs(((tiles[0]?.row ?? 0) + 0.5) * span - middle)).toBeLessThan(span);
  // Never smaller than a cell should be, never beyond the end.
  const last = inside({ top: 1e9, left: 1e9, scale: 1e-9 }, 100_000, box);
  expect(last.scale).toBeGreaterThan(0.02);
  expect(last.top + 540 * last.scale).toBeCloseTo(100_000, 6);
  expect(topLevel(100)).toBe(0);
});

test("the largest of a long row, with ties, hidden keys and one in focus", () => {
  const weights = Float32Array.from({ length: 50_000 }, (_, at) => (at * 7919) % 1000);
  const scores = weights.map((_, at) => (at < 1000 ? -Infinity : 0));
  const rows = inspectRow(weights, scores, 5, 4242);
  const order = [...weights.keys()].filter((at) => at >= 1000);
  order.sort((a, b) => (weights[b] as number) - (weights[a] as number) || a - b);
  expect(rows.slice(0, 4).map(({ index }) => index)).toEqual(order.slice(0, 4));
  expect(rows.slice(0, 4).map(({ rank }) => rank)).toEqual([1, 1, 1, 1]);
  const own = weights[4242] as number;
  expect(rows[4]).toMatchObject({
    index: 4242,
    rank: 1 + order.filter((at) => (weights[at] as number) > own).length,
  });
});
