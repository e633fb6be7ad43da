// Scores that are sums: each term of one mechanism alone, and all of them together. Terms are computed by
// calls whose other inputs are 0.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleParams, ExampleTensor } from "../../lib/example.js";
import type { Tone } from "../../lib/plot.js";
import { hashText, normalSource } from "../../lib/random.js";
import { COUNT, DIM, K, Q, V } from "../linear/state.js";

export { COUNT, DIM, K, Q, WORDS } from "../linear/state.js";

type Inputs = Readonly<Record<string, ExampleTensor>>;

/** A term by its formula: orange where the query decides, blue where the key does, ink where both do. */
export interface TermCall {
  symbol: string;
  tone: Tone;
  inputs: Inputs;
}

export interface Problem {
  id: string;
  inputs: Inputs;
  params: ExampleParams;
  terms: readonly TermCall[];
}

export interface Terms {
  called: Called;
  /** [COUNT, COUNT] each, of queries and keys. */
  terms: readonly { symbol: string; tone: Tone; scores: Float32Array }[];
  /** -Infinity where a key is hidden. */
  scores: Float32Array;
  weights: Float32Array;
}

export const words = (vectors: ArrayLike<number>, width = DIM): ExampleTensor =>
  floats(vectors, [1, 1, COUNT, width]);
export const zeros = (...shape: number[]): ExampleTensor =>
  floats(
    Array.from({ length: shape.reduce((product, extent) => product * extent, 1) }, () => 0),
    shape,
  );
export const NOTHING = words(Array.from({ length: COUNT * DIM }, () => 0));
export const QKV = { q: words(Q), k: words(K), v: words(V) };

/** Seeded normal numbers for a learned table [rows, DIM]. */
export function learned(name: string, rows: number, size: number): ExampleTensor {
  const normal = normalSource(hashText(name));
  return floats(
    Array.from({ length: rows * DIM }, () => size * normal()),
    [rows, DIM],
  );
}

export function terms(heed: Heed, { id, inputs, params, terms: parts }: Problem): Terms {
  const asked = { ...params, returnWeights: true, returnScores: "biased" };
  const called = make(heed, { id, inputs, params: asked });
  const alone = (own: Inputs) =>
    heed.run(id, own, { ...params, returnScores: "biased" }).scores?.data as Float32Array;
  return {
    called,
    terms: parts.map(({ symbol, tone, inputs: own }) => ({ symbol, tone, scores: alone(own) })),
    scores: called.results.scores?.data as Float32Array,
    weights: called.results.weights?.data as Float32Array,
  };
}
