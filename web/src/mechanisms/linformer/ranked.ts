// Attention through a few compressed keys, beside exact attention over all: the weights that it stands for, and how
// far off they are.
import type { Heed } from "heed";
import { type Called, floats } from "../../lib/call.js";
import { K, Q, TOKENS, UNIT } from "../block_mixture/text.js";

export const INPUTS = { q: Q, k: K, v: UNIT };

export interface Ranked {
  /** Sizes for the curve, in the order of their compressed keys, fewest first. */
  sizes: readonly number[];
  /** How many compressed keys a size gives. */
  keys: (size: number) => number;
  call: (heed: Heed, size: number) => Called;
  /** The weights [TOKENS, TOKENS] in what that call gave; absent: all of its output. */
  weights?: (called: Called) => Float32Array;
  /** What each compressed key is made of [keys, TOKENS]. */
  parts: (heed: Heed, size: number) => Float32Array;
}

/** [TOKENS, TOKENS]: values are unit vectors, and the output is what each query takes of each. */
export const impliedWeights = ({ results }: Called): Float32Array =>
  results.output?.data as Float32Array;

export function exactWeights(heed: Heed): Float32Array {
  const params = { returnWeights: true };
  return heed.run("scaled_dot_product", INPUTS, params).weights?.data as Float32Array;
}

const sizeOf = (values: ArrayLike<number>): number => {
  let squares = 0;
  for (let at = 0; at < values.length; at++) squares += (values[at] as number) ** 2;
  return Math.sqrt(squares);
};

/** ‖weights - exact‖ / ‖exact‖. */
export const errorOf = (exact: Float32Array, weights: Float32Array): number =>
  sizeOf(exact.map((value, at) => value - (weights[at] as number))) / sizeOf(exact);

const MAX_SWEEPS = 60;
const SMALL = 1e-12;

/** Singular values of a square matrix, largest first, by turning its rows against each other until all pairs are at
    right angles (one-sided Jacobi). */
export function singularValues(matrix: ArrayLike<number>, count: number): number[] {
  const rows = Array.from({ length: count }, (_, i) =>
    Float64Array.from({ length: count }, (_, j) => matrix[i * count + j] as number),
  );
  const dot = (a: Float64Array, b: Float64Array) =>
    a.reduce((sum, x, d) => sum + x * (b[d] as number), 0);
  for (let sweep = 0; sweep < MAX_SWEEPS; sweep++) {
    let turned = false;
    for (let i = 0; i < count; i++) {
      for (let j = i + 1; j < count; j++) {
        const [a, b] = [rows[i] as Float64Array, rows[j] as Float64Array];
        const [aa, bb, ab] = [dot(a, a), dot(b, b), dot(a, b)];
        if (Math.abs(ab) <= SMALL * Math.sqrt(aa * bb)) continue;
        turned = true;
        const zeta = (bb - aa) / (2 * ab);
        const tangent = (zeta < 0 ? -1 : 1) / (Math.abs(zeta) + Math.hypot(1, zeta));
        const cosine = 1 / Math.hypot(1, tangent);
        for (let d = 0; d < count; d++) {
          const [x, y] = [a[d] as number, b[d] as number];
          a[d] = cosine * (x - tangent * y);
          b[d] = cosine * (tangent * x + y);
        }
      }
    }
    if (!turned) break;
  }
  return rows.map(sizeOf).sort((a, b) => b - a);
}

/** The error of the best matrix of each rank, 0 to all (Eckart and Young 1936). */
export function bestErrors(values: readonly number[]): number[] {
  const all = sizeOf(values);
  return [...values, 0].map((_, rank) => sizeOf(values.slice(rank)) / all);
}

/** Means of `count` segments of tokens [count, TOKENS], as even as they can be. */
export function segmentMeans(count: number): Float32Array {
  const parts = new Float32Array(count * TOKENS);
  for (let n = 0; n < count; n++) {
    const [from, to] = [Math.floor((n * TOKENS) / count), Math.floor(((n + 1) * TOKENS) / count)];
    parts.fill(1 / (to - from), n * TOKENS + from, n * TOKENS + to);
  }
  return parts;
}

/** A mixture of the tokens for each compressed key, as heed takes it. */
export const projectionOf = (parts: Float32Array) =>
  floats(parts, [1, parts.length / TOKENS, TOKENS]);
