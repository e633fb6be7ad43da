// Eight heads whose keys are shared ever more: the keys of a group are the mean of its heads' own, as when a
// model with a set for each head is converted. What a cache of them takes is measured on heed's own.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";
import { HEAD_DIM, MODEL_DIM, PROJECTIONS, tokenVectors } from "../../lib/vectors.js";
import { COUNT, WORDS } from "../linear/state.js";

export { COUNT, WORDS } from "../linear/state.js";

export const HEADS = 8;
/** Sets of keys and values that the heads can have. */
export const SETS = [1, 2, 4, 8] as const;
export type Sets = (typeof SETS)[number];
/** Heads that are alike are neighbours: two of each kind. */
const ALIKE = HEADS / PROJECTIONS.length;
const APART = 0.12;

/** [HEADS, HEAD_DIM, MODEL_DIM] of the queries or the keys. */
function projections(side: "query" | "key"): number[][] {
  return Array.from({ length: HEADS }, (_, head) => {
    const own = PROJECTIONS[Math.floor(head / ALIKE)]?.[side] as Float32Array;
    const normal = normalSource(hashText(`shared ${side} ${head}`));
    return Array.from({ length: HEAD_DIM * MODEL_DIM }, (_, at) => {
      const [d, m] = [Math.floor(at / MODEL_DIM), at % MODEL_DIM];
      return (own[m * HEAD_DIM + d] as number) + APART * normal();
    });
  });
}
export const [QUERIES, KEYS] = [projections("query"), projections("key")] as const;
const X = floats(tokenVectors(WORDS), [1, COUNT, MODEL_DIM]);

/** The mean of the heads of each group, [sets, HEAD_DIM, MODEL_DIM]. */
function pooled(sets: number): number[][] {
  const size = HEADS / sets;
  return Array.from({ length: sets }, (_, set) => {
    const heads = KEYS.slice(set * size, (set + 1) * size);
    return (heads[0] as number[]).map(
      (_, at) => heads.reduce((sum, head) => sum + (head[at] as number), 0) / size,
    );
  });
}

export const setOf = (head: number, sets: number): number => Math.floor((head * sets) / HEADS);

function inputsOf(sets: Sets): Record<string, ExampleTensor> {
  const wQ = floats(QUERIES.flat(), [HEADS, HEAD_DIM, MODEL_DIM]);
  const own = floats(pooled(sets).flat(), [sets, HEAD_DIM, MODEL_DIM]);
  return { query: X, key: X, value: X, wQ, wK: own, wV: own };
}

export interface Shared {
  called: Called;
  /** Of each head, [COUNT, COUNT]. */
  weights: readonly Float32Array[];
}

export function shared(heed: Heed, sets: Sets): Shared {
  const id = sets === 1 ? "multi_query" : "grouped_query";
  const params = { returnWeights: true, averageWeights: false };
  const called = make(heed, { id, inputs: inputsOf(sets), params });
  const all = called.results.weights?.data as Float32Array;
  const size = COUNT * COUNT;
  const weights = Array.from({ length: HEADS }, (_, head) =>
    all.subarray(head * size, (head + 1) * size),
  );
  return { called, weights };
}

/** The part of a row's weight that has moved to other keys, in the mean of all rows: 0 to 1. */
export function changeOf(weights: ArrayLike<number>, from: ArrayLike<number>): number {
  const moved = Array.from(weights, (weight, at) => Math.abs(weight - (from[at] as number)));
  return moved.reduce((sum, value) => sum + value, 0) / 2 / COUNT;
}

/** Tokens that the measured cache has room for. */
const MEASURED = 64;

/** Bytes that heed's cache takes for one token of one layer, in float16. */
export function bytesPerToken(
  heed: Heed,
  numKvHeads: number,
  headDim: number,
  headDimV = headDim,
): number {
  const cache = new heed.KvCache({
    numKvHeads,
    headDim,
    headDimV,
    capacity: MEASURED,
    dtype: "float16",
  });
  const zeros = (width: number) =>
    floats(new Float32Array(numKvHeads * width), [1, numKvHeads, 1, width]);
  cache.append(zeros(headDim), zeros(headDimV));
  const { bytes } = cache.memory();
  cache.dispose();
  return bytes / MEASURED;
}
