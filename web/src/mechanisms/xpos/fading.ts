// The product of one query and one key at growing distances: by RoPE, and by xPos, whose pairs shrink.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleParams } from "../../lib/example.js";

export const DIM = 32;
export const PAIRS = DIM / 2;
/** Distances from 0 up. */
export const DISTANCES = 1024;

/** 1 in every dimension: all hands begin together. */
const ONES = floats(
  Array.from({ length: DISTANCES * DIM }, () => 1),
  [1, 1, DISTANCES, DIM],
);

export interface Fading {
  called: Called;
  /** Of the query at distance 0, 1, ..., with the key at 0, over DIM: [DISTANCES] each. */
  xpos: Float32Array;
  rope: Float32Array;
  /** What pair p has left of its length at each distance, [DISTANCES, PAIRS]. */
  lengths: Float32Array;
}

const product = (heed: Heed, q: Float32Array, k: Float32Array): Float32Array => {
  const shape = [1, 1, DISTANCES, DIM];
  const first = floats(k.subarray(0, DIM), [1, 1, 1, DIM]);
  const inputs = { q: floats(q, shape), k: first, v: first };
  const { scores } = heed.run("scaled_dot_product", inputs, {
    scale: 1 / DIM,
    returnScores: "raw",
  });
  return scores?.data as Float32Array;
};

export function fading(heed: Heed, gamma: number, scaleBase: number): Fading {
  // Positions are counted from 0, so that the key at 0 keeps its length and the query has it all.
  const params: ExampleParams = { gamma, scaleBase, pairing: "half", side: "query" };
  const called = make(heed, { id: "xpos", inputs: { x: ONES }, params });
  const turned = called.results.output?.data as Float32Array;
  const keys = heed.run("xpos", { x: ONES }, { ...params, side: "key" }).output
    .data as Float32Array;
  const rope = heed.run("rope", { x: ONES }, { pairing: "half" }).output.data as Float32Array;
  const lengths = new Float32Array(DISTANCES * PAIRS);
  for (let at = 0; at < lengths.length; at++) {
    const [row, pair] = [Math.floor(at / PAIRS), at % PAIRS];
    const [x, y] = [turned[row * DIM + pair] as number, turned[row * DIM + pair + PAIRS] as number];
    lengths[at] = Math.hypot(x, y) / Math.SQRT2;
  }
  return { called, xpos: product(heed, turned, keys), rope: product(heed, rope, rope), lengths };
}
