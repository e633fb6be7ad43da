// What of exact attention is left when each query reads some keys only: every mechanism that chooses keys,
// on the same text.
import type { Heed } from "heed";
import type { Called } from "../../lib/call.js";
import { DIM, K, Q, TOKENS, UNIT } from "./text.js";

export const INPUTS = { q: Q, k: K, v: UNIT };

/** Keys [from, to) that are judged together. */
export interface Group {
  from: number;
  to: number;
  score: number;
  /** What the score was a promise of. */
  actual?: number;
}

export interface Choosing {
  /** Budgets for the curve, small ones first; none where the budget changes nothing. */
  budgets: readonly number[];
  /** Weights stand on summaries of keys too, which are not keys that are read. */
  summarises?: boolean;
  call: (heed: Heed, budget: number) => Called;
  /** Why a query reads what it reads; absent: by place alone. */
  groups?: (heed: Heed, weights: Float32Array, query: number) => Group[];
}

/** [TOKENS, TOKENS]: with unit vectors as values the output is the weights too. */
export const weightsOf = ({ results }: Called): Float32Array =>
  (results.weights ?? results.output)?.data as Float32Array;

export function exactWeights(heed: Heed): Float32Array {
  const params = { causal: true, returnWeights: true };
  return heed.run("scaled_dot_product", INPUTS, params).weights?.data as Float32Array;
}

const rowOf = (all: Float32Array, query: number): Float32Array =>
  all.subarray(query * TOKENS, (query + 1) * TOKENS);

export interface Kept {
  /** How many keys are read. */
  keys: number;
  /** The share of the exact weight that stands on them. */
  share: number;
  /** The most that as many keys could hold. */
  best: number;
}

export function keptBy(exact: Float32Array, weights: Float32Array, query: number): Kept {
  const [own, all] = [rowOf(weights, query), rowOf(exact, query)];
  const read = [...all.keys()].filter((key) => own[key] !== 0);
  const share = read.reduce((sum, key) => sum + (all[key] as number), 0);
  const best = [...all].sort((a, b) => b - a).slice(0, read.length);
  return { keys: read.length, share, best: best.reduce((sum, weight) => sum + weight, 0) };
}

/** The mean over all queries. */
export function keptByAll(exact: Float32Array, weights: Float32Array): Kept {
  const all = Array.from({ length: TOKENS }, (_, query) => keptBy(exact, weights, query));
  const mean = (of: (kept: Kept) => number) =>
    all.reduce((sum, kept) => sum + of(kept), 0) / TOKENS;
  return {
    keys: mean(({ keys }) => keys),
    share: mean(({ share }) => share),
    best: mean(({ best }) => best),
  };
}

/** Products of queries [heads, TOKENS, dim] with other keys [heads, count, dim]: [heads, TOKENS, count]. */
export function products(
  heed: Heed,
  queries: Float32Array,
  keys: Float32Array,
  { heads = 1, dim = DIM }: { heads?: number; dim?: number } = {},
): Float32Array {
  const count = keys.length / heads / dim;
  const tensor = (data: Float32Array, rows: number) => ({ data, shape: [1, heads, rows, dim] });
  const k = tensor(keys, count);
  const options = { scale: 1, returnScores: "raw" } as const;
  return heed.attention(tensor(queries, TOKENS), k, k, options).scores.data as Float32Array;
}

/** Blocks of `size` keys that begin at or before the query. */
export function blocksUpTo(query: number, size: number): { from: number; to: number }[] {
  const count = Math.floor(query / size) + 1;
  return Array.from({ length: count }, (_, n) => ({
    from: n * size,
    to: Math.min(TOKENS, (n + 1) * size),
  }));
}

export const keyRow = (key: number): Float32Array =>
  (K.data as Float32Array).subarray(key * DIM, (key + 1) * DIM);
