// Blocks of keys that are brought to blocks of queries: scores of blocks, made nearly a permutation.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import { DIM, K, Q, TOKENS, UNIT } from "../block_mixture/text.js";

export const SIZE = 8;
export const BLOCKS = TOKENS / SIZE;
/** A block has its own keys anyway: it shall bring another one. */
const NEVER = -30;

function blockMeans(rows: ArrayLike<number>): Float32Array {
  return Float32Array.from({ length: BLOCKS * DIM }, (_, at) => {
    const [block, d] = [Math.floor(at / DIM), at % DIM];
    let sum = 0;
    for (let n = 0; n < SIZE; n++) sum += rows[(block * SIZE + n) * DIM + d] as number;
    return sum / SIZE;
  });
}

/** Products of mean queries and mean keys over √d [BLOCKS, BLOCKS]. */
export function logitsOf(heed: Heed): Float32Array {
  const tensor = (data: Float32Array) => ({ data, shape: [1, 1, BLOCKS, DIM] });
  const [q, k] = [tensor(blockMeans(Q.data)), tensor(blockMeans(K.data))];
  const scores = heed.attention(q, k, k, { returnScores: "raw" }).scores.data as Float32Array;
  return scores.map((score, at) => (Math.floor(at / BLOCKS) === at % BLOCKS ? NEVER : score));
}

export interface Sorted {
  called: Called;
  /** [TOKENS, TOKENS] */
  weights: Float32Array;
  /** [BLOCKS, BLOCKS]: how much of each block comes to each place. */
  shares: Float32Array;
}

export function sorted(heed: Heed, sortIterations: number, sortTemperature: number): Sorted {
  const sortLogits = floats(logitsOf(heed), [1, 1, BLOCKS, BLOCKS]);
  const params = { keyBlock: SIZE, sortIterations, sortTemperature };
  const call = (q: typeof Q) =>
    make(heed, { id: "sinkhorn", inputs: { q, k: K, v: UNIT, sortLogits }, params });
  const called = call(Q);
  // Queries of 0 share themselves out evenly, half to what came and half to their own block.
  const even = resultOf(call(floats(new Float32Array(TOKENS * DIM), Q.shape)), "output").data;
  const shares = Float32Array.from({ length: BLOCKS * BLOCKS }, (_, at) => {
    const [place, block] = [Math.floor(at / BLOCKS), at % BLOCKS];
    const first = place * SIZE * TOKENS + block * SIZE;
    const sum = even.subarray(first, first + SIZE).reduce((all, weight) => all + weight, 0);
    return 2 * sum - Number(place === block);
  });
  return { called, weights: resultOf(called, "output").data, shares };
}

/** The largest difference of a row's or a column's sum from 1. */
export function imbalance(shares: Float32Array, along: "rows" | "columns"): number {
  const sums = Array.from({ length: BLOCKS }, (_, a) => {
    let sum = 0;
    for (let b = 0; b < BLOCKS; b++) {
      sum += shares[along === "rows" ? a * BLOCKS + b : b * BLOCKS + a] as number;
    }
    return Math.abs(sum - 1);
  });
  return Math.max(...sums);
}

/** The block that comes to a place most. */
export function broughtTo(shares: Float32Array, place: number): { block: number; share: number } {
  const row = [...shares.subarray(place * BLOCKS, (place + 1) * BLOCKS)];
  const share = Math.max(...row);
  return { block: row.indexOf(share), share };
}
