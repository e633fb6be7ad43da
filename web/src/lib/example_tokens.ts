// Queries, keys and values of an example, so that its picture shows what the mechanism does: random ones
// would make most pictures the same noise.

import type { ExampleTensor } from "./example.js";
import { hashText, normalSource } from "./random.js";

/** Neighbours resemble each other in the first head, hardly in the others. */
const LIKENESS = [0.65, 0.2] as const;
/** A phrase that comes a second time: its first token, where it comes again, how many. */
const PHRASE = { from: 4, again: 10, len: 4 } as const;
/** What a query or a key has of its own, beside what its token is. */
const OWN = 0.4;
/**
 * Of every query and every key, times the square root of its dimensions: where keys differ in length the
 * longest wins everywhere, and a delta rule whose keys are long grows without end.
 */
const LENGTHS: Readonly<Record<string, number>> = { q: 1.5, k: 0.7 };

/** The tokens of one head [len, dim], the same for queries and keys. */
function drawTokens(len: number, dim: number, likeness: number, seed: number): Float32Array {
  const normal = normalSource(seed);
  const fresh = Math.sqrt(1 - likeness * likeness);
  const tokens = new Float32Array(len * dim);
  for (let at = 0; at < tokens.length; at++) {
    const before = tokens[at - dim];
    tokens[at] = before === undefined ? normal() : likeness * before + fresh * normal();
  }
  const { from, again, len: words } = PHRASE;
  if (again + words <= len) tokens.copyWithin(again * dim, from * dim, (from + words) * dim);
  return tokens;
}

/** Gives the vectors [..., dim] one length. */
function setLengths(vectors: Float32Array, dim: number, length: number): void {
  for (let at = 0; at < vectors.length; at += dim) {
    const vector = vectors.subarray(at, at + dim);
    const factor = (length * Math.sqrt(dim)) / Math.hypot(...vector);
    for (let d = 0; d < dim; d++) vector[d] = factor * (vector[d] ?? 0);
  }
}

/** Queries or keys [..., heads, len, dim] of a text: near tokens are alike, and a phrase is repeated. */
export function drawSequence(name: string, shape: readonly number[], seed: number): Float32Array {
  const [len = 1, dim = 1] = shape.slice(-2);
  const size = len * dim;
  const own = normalSource(hashText(`${seed}:${name}`));
  const values = new Float32Array(shape.reduce((product, extent) => product * extent, 1));
  for (let head = 0; head * size < values.length; head++) {
    const likeness = LIKENESS[Math.min(head, LIKENESS.length - 1)] ?? 0;
    const tokens = drawTokens(len, dim, likeness, hashText(`${seed}:head ${head}`));
    values.set(
      tokens.map((value) => value + OWN * own()),
      head * size,
    );
  }
  setLengths(values, dim, LENGTHS[name] ?? 1);
  return values;
}

/** Values [..., len, len] that are unit vectors: row i of the output is what token i takes of each. */
export function unitVectors(shape: readonly number[]): Float32Array {
  const [len = 1, dim = 1] = shape.slice(-2);
  const count = shape.reduce((product, extent) => product * extent, 1);
  return Float32Array.from({ length: count }, (_, at) =>
    Math.floor(at / dim) % len === at % dim ? 1 : 0,
  );
}

/**
 * Mechanisms that form no weights, but whose output is a sum of the values: with unit vectors as values it is
 * the weights that they would have had.
 */
export const SUMS_VALUES: ReadonlySet<string> = new Set(
  (
    "linear performer cosformer based retention lightning gated_linear mamba2 hgrn2 delta_rule " +
    "gated_delta_rule kimi_delta rwkv6 rwkv7 log_linear nystrom native_sparse sinkhorn"
  ).split(" "),
);

/** Unit vectors in place of an example's values: as many dimensions as there are tokens. */
export function unitValues(inputs: Readonly<Record<string, ExampleTensor>>): {
  v?: ExampleTensor;
} {
  const { k, q, v } = inputs;
  const len = (k ?? q)?.shape.at(-2);
  if (!v || len === undefined) return {};
  const shape = [...v.shape.slice(0, -1), len];
  return { v: { data: unitVectors(shape), shape } };
}
