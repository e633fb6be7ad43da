// One row of scores and the weights that a normaliser makes of it; and the same row while one of its scores
// goes through its whole range. Scores are the query, keys and values unit vectors: the output is the row of
// weights.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleParams, ExampleTensor } from "../../lib/example.js";

export const RESTING: readonly number[] = [0.5, 1.5, -0.5, 2, 0.25, -1.5, 1];
export const KEYS = RESTING.length;
export const RANGE = { min: -3, max: 3, step: 0.25 } as const;
/** Where the moved score goes: fine steps, since some weights jump. */
export const PLACES: readonly number[] = Array.from({ length: 241 }, (_, at) => (at - 120) / 40);

export type Normaliser =
  | "hard"
  | "top_k"
  | "sigmoid"
  | "relu"
  | "relu_squared"
  | "stick_breaking"
  | "average";

const UNIT = floats(
  Array.from({ length: KEYS * KEYS }, (_, at) => (Math.floor(at / KEYS) === at % KEYS ? 1 : 0)),
  [1, 1, KEYS, KEYS],
);

export interface Row {
  called: Called;
  weights: Float32Array;
  softmax: Float32Array;
  /** [PLACES, KEYS], of the row with the moved score at each place. */
  sweep: Float32Array;
  softmaxSweep: Float32Array;
}

/** The row first, then the row with the score of key `moved` at every place. */
function queries(scores: readonly number[], moved: number): ExampleTensor {
  const rows = PLACES.map((place) => scores.map((score, at) => (at === moved ? place : score)));
  return floats([scores, ...rows].flat(), [1, 1, 1 + PLACES.length, KEYS]);
}

export function rowOf(
  heed: Heed,
  id: Normaliser,
  scores: readonly number[],
  moved: number,
  { params = {}, visible = KEYS }: { params?: ExampleParams; visible?: number } = {},
): Row {
  const qkv = { q: queries(scores, moved), k: UNIT, v: UNIT };
  const keyLengths = { data: Int32Array.of(visible), shape: [1] };
  const inputs = visible < KEYS ? { ...qkv, keyLengths } : qkv;
  const scale = id === "average" ? {} : { scale: 1 };
  const called = make(heed, { id, inputs, params: { ...scale, ...params } });
  const all = called.results.output?.data as Float32Array;
  const softmax = heed.run("scaled_dot_product", inputs, { scale: 1 }).output.data as Float32Array;
  return {
    called,
    weights: all.subarray(0, KEYS),
    softmax: softmax.subarray(0, KEYS),
    sweep: all.subarray(KEYS),
    softmaxSweep: softmax.subarray(KEYS),
  };
}

/** The key with the largest score beside the moved one: whom a change of it would hurt first. */
export function rivalOf(scores: readonly number[], moved: number): number {
  const others = scores.map((score, at) => (at === moved ? -Infinity : score));
  return others.indexOf(Math.max(...others));
}

/** What a link says of the scores, and back; null for anything else. */
export const scoresText = (scores: readonly number[]): string => scores.join(",");
export function scoresIn(text: string): number[] | null {
  const scores = text.split(",").map((part) => (part.trim() === "" ? Number.NaN : Number(part)));
  const fits = scores.every((score) => score >= RANGE.min && score <= RANGE.max);
  return scores.length === KEYS && fits ? scores : null;
}
