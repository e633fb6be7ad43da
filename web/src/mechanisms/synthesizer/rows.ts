// The weights of a sentence whose words move on, made in three ways: by comparing two tokens, from one token
// alone, and learned once for all.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";
import { COUNT, DIM, K, Q, V, WORDS } from "../linear/state.js";

export { COUNT } from "../linear/state.js";

export const WAYS = ["dot", "dense", "random"] as const;
export type Way = (typeof WAYS)[number];

const drawn = (name: string, size: number, shape: number[]): ExampleTensor => {
  const normal = normalSource(hashText(name));
  const count = shape.reduce((product, extent) => product * extent, 1);
  return floats(
    Array.from({ length: count }, () => size * normal()),
    shape,
  );
};

/** What is learned: a row of numbers for each place, or a score for each pair of places. */
export const DENSE_KEYS = drawn("synthesizer dense", 0.7, [1, COUNT, DIM]);
export const RANDOM_SCORES = drawn("synthesizer random", 1.5, [1, COUNT, COUNT]);

/** Which word stands at each place once all have moved on by `steps`. */
export const orderOf = (steps: number): number[] =>
  WORDS.map((_, place) => (place - steps + COUNT) % COUNT);

function moved(vectors: Float32Array, steps: number): ExampleTensor {
  const rows = orderOf(steps).flatMap((word) =>
    Array.from(vectors.subarray(word * DIM, (word + 1) * DIM)),
  );
  return floats(rows, [1, 1, COUNT, DIM]);
}

function callOf(heed: Heed, way: Way, steps: number): Called {
  const [q, v] = [moved(Q, steps), moved(V, steps)];
  const params = { returnWeights: true };
  if (way === "dot") {
    const inputs = { q, k: moved(K, steps), v };
    return make(heed, { id: "scaled_dot_product", inputs, params });
  }
  const learned =
    way === "dense" ? { q, syntheticKeys: DENSE_KEYS } : { syntheticScores: RANDOM_SCORES };
  return make(heed, { id: "synthesizer", inputs: { ...learned, v }, params });
}

export interface Rows {
  called: Called;
  /** [COUNT, COUNT], by places. */
  weights: Float32Array;
  /** The same before the words moved. */
  before: Float32Array;
  /** How far the rows of places differ from before, 0 to 1; and those of words, wherever they stand now. */
  ofPlaces: number;
  ofWords: number;
}

export function rows(heed: Heed, way: Way, steps: number): Rows {
  const called = callOf(heed, way, steps);
  const weightsOf = (of: Called) => resultOf(of, "weights").data;
  const [weights, before] = [weightsOf(called), weightsOf(callOf(heed, way, 0))];
  const differ = (rowBefore: (row: number) => number) => {
    let apart = 0;
    for (let i = 0; i < COUNT; i++) {
      for (let j = 0; j < COUNT; j++) {
        const then = before[rowBefore(i) * COUNT + j] as number;
        apart += Math.abs((weights[i * COUNT + j] as number) - then) / 2 / COUNT;
      }
    }
    return apart;
  };
  const order = orderOf(steps);
  const ofWords = differ((row) => order[row] as number);
  return { called, weights, before, ofPlaces: differ((row) => row), ofWords };
}
