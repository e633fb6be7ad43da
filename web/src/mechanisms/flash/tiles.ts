// One query over 2048 keys, tile by tile, as the kernel itself went.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import { hashText, normalSource } from "../../lib/random.js";

export const KEYS = 2048;
export const TILE = 256;
export const TILES = KEYS / TILE;
export const DIM = 16;
const SEED = "flash";

const draw = (name: string, count: number): Float32Array => {
  const normal = normalSource(hashText(`${SEED} ${name}`));
  return Float32Array.from({ length: count }, normal);
};

export const Q = floats(draw("q", DIM), [1, 1, 1, DIM]);
/** Later keys are larger: the maximum rises a few times on the way. */
export const K = floats(
  draw("k", KEYS * DIM).map((value, at) => value * (0.6 + (0.6 * Math.floor(at / DIM)) / KEYS)),
  [1, 1, KEYS, DIM],
);
const V = floats(draw("v", KEYS), [1, 1, KEYS, 1]);

export interface Walk {
  called: Called;
  /** [KEYS] */
  scores: Float32Array;
  /** After each tile, [TILES]. */
  max: Float32Array;
  sum: Float32Array;
  rescale: Float32Array;
  /** The sum of exp(score) in float32 without a maximum, after each tile. */
  plainSum: number[];
}

/** `scale` multiplies every product q.k. */
export function walk(heed: Heed, scale: number): Walk {
  const inputs = { q: Q, k: K, v: V };
  const called = make(heed, {
    id: "flash",
    inputs,
    params: { scale, returnTiles: true, tilesOfQuery: 0 },
  });
  const scores = heed.run("flash", inputs, { scale, returnScores: "biased" }).scores
    ?.data as Float32Array;
  let sum = 0;
  const plainSum = Array.from({ length: TILES }, (_, tile) => {
    for (const score of scores.subarray(tile * TILE, (tile + 1) * TILE)) {
      sum = Math.fround(sum + Math.fround(Math.exp(score)));
    }
    return sum;
  });
  const ofTiles = (name: string) => resultOf(called, name).data;
  return {
    called,
    scores,
    max: ofTiles("runningMax"),
    sum: ofTiles("runningSum"),
    rescale: ofTiles("rescale"),
    plainSum,
  };
}

/** First and last key of a tile, counted from 1. */
export const tileRange = (tile: number): [number, number] => [tile * TILE + 1, (tile + 1) * TILE];
