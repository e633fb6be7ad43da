// Twelve heads over one sentence: the four of the home page at three temperatures.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import { decimal } from "../../lib/messages.js";
import { HEAD_DIM, HEADS, projectTokens } from "../../lib/vectors.js";

export const TEMPERATURES = [0.5, 1, 2] as const;
export const COUNT = HEADS.length * TEMPERATURES.length;

export const headTitle = (head: number): string =>
  `${HEADS[head % HEADS.length]?.title}, T\u00a0=\u00a0${decimal(String(TEMPERATURES[Math.floor(head / HEADS.length)]))}`;

export interface Heads {
  called: Called;
  tokens: readonly string[];
  /** [COUNT, tokens, tokens] */
  weights: Float32Array;
  scores: Float32Array;
}

/** Temperature divides the queries, so that all heads share one scale. */
export function attendHeads(heed: Heed, tokens: readonly string[], causal: boolean): Heads {
  const { length, q, k, v } = projectTokens(tokens);
  const perKind = HEADS.length * length * HEAD_DIM;
  const shape = [1, COUNT, length, HEAD_DIM];
  const repeated = (all: Float32Array, divide: boolean) =>
    floats(
      Float32Array.from({ length: COUNT * length * HEAD_DIM }, (_, at) => {
        const temperature = TEMPERATURES[Math.floor(at / perKind)] as number;
        return (all[at % perKind] as number) / (divide ? temperature : 1);
      }),
      shape,
    );
  const inputs = { q: repeated(q, true), k: repeated(k, false), v: repeated(v, false) };
  const params = { causal, returnWeights: true, returnScores: "biased" };
  const called = make(heed, { id: "scaled_dot_product", inputs, params });
  return {
    called,
    tokens,
    weights: called.results.weights?.data as Float32Array,
    scores: called.results.scores?.data as Float32Array,
  };
}

export const ofHead = (all: Float32Array, head: number, length: number): Float32Array =>
  all.subarray(head * length * length, (head + 1) * length * length);

export const rowOf = (matrix: Float32Array, row: number, length: number): Float32Array =>
  matrix.subarray(row * length, (row + 1) * length);
