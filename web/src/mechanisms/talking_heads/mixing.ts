// Three heads of the first page over one sentence, alone and with the first listening to the others.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { HEAD_DIM, projectTokens } from "../../lib/vectors.js";
import { COUNT, WORDS } from "../linear/state.js";

export { COUNT, WORDS } from "../linear/state.js";

/** Similar letters, the word before, near neighbours. */
export const HEADS = 3;

export interface Mixing {
  /** What the first head adds of the scores of the second and of the third. */
  second: number;
  third: number;
  /** What it adds of the second's weights, after the softmax. */
  weights: number;
}
export const RESTING: Mixing = { second: 0, third: -1, weights: 0 };

const { q: Q, k: K, v: V } = projectTokens(WORDS);
const heads = (all: Float32Array): ExampleTensor =>
  floats(all.subarray(0, HEADS * COUNT * HEAD_DIM), [1, HEADS, COUNT, HEAD_DIM]);
const INPUTS = { q: heads(Q), k: heads(K), v: heads(V) };

/** From head (row) to head (column): every head has its own, the first listens. */
const matrix = (second: number, third: number): ExampleTensor =>
  floats([1, 0, 0, second, 1, 0, third, 0, 1], [HEADS, HEADS]);

export interface Talk {
  called: Called;
  /** Of each head, [COUNT, COUNT]. */
  alone: readonly Float32Array[];
  talking: readonly Float32Array[];
}

const ofHeads = (all: Float32Array): Float32Array[] =>
  Array.from({ length: HEADS }, (_, head) =>
    all.subarray(head * COUNT * COUNT, (head + 1) * COUNT * COUNT),
  );

export function talk(heed: Heed, { second, third, weights }: Mixing): Talk {
  const inputs = {
    ...INPUTS,
    mixScores: matrix(second, third),
    mixWeights: matrix(weights, 0),
  };
  const called = make(heed, { id: "talking_heads", inputs, params: { returnWeights: true } });
  const alone = heed.run("scaled_dot_product", INPUTS, { returnWeights: true });
  return {
    called,
    alone: ofHeads(alone.weights?.data as Float32Array),
    talking: ofHeads(called.results.weights?.data as Float32Array),
  };
}
