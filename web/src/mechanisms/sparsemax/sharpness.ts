// The weights of six keys while their scores are stretched: softmax never reaches zero, sparsemax and
// entmax do. Scores are the query, keys and values unit vectors: the output is the row of weights.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";

export const SCORES: readonly number[] = [1.2, 0.9, 0.5, 0.1, -0.4, -1];
export const KEYS = SCORES.length;
/** Factors on the scores, equal steps of their logarithm from 1/8 to 8. */
export const FACTORS: readonly number[] = Array.from(
  { length: 61 },
  (_, at) => 2 ** ((at - 30) / 10),
);

const UNIT = floats(
  Array.from({ length: KEYS * KEYS }, (_, at) => (Math.floor(at / KEYS) === at % KEYS ? 1 : 0)),
  [1, 1, KEYS, KEYS],
);
const QUERIES = floats(
  FACTORS.flatMap((factor) => SCORES.map((score) => factor * score)),
  [1, 1, FACTORS.length, KEYS],
);

export type Sparse = "sparsemax" | "entmax15";

export interface Sharpness {
  called: Called;
  /** [factors, KEYS] */
  weights: Float32Array;
  softmax: Float32Array;
}

export function sharpness(heed: Heed, id: Sparse): Sharpness {
  const inputs = { q: QUERIES, k: UNIT, v: UNIT };
  const called = make(heed, { id, inputs, params: { scale: 1 } });
  const softmax = heed.run("scaled_dot_product", inputs, { scale: 1 });
  return {
    called,
    weights: called.results.output?.data as Float32Array,
    softmax: softmax.output.data as Float32Array,
  };
}

export const rowAt = (weights: Float32Array, place: number): Float32Array =>
  weights.subarray(place * KEYS, (place + 1) * KEYS);
