// A sentence read into a state of fixed size, token by token.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleParams, ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";

export const WORDS: readonly string[] =
  "the cat sat on the mat because the cat was tired and slept".split(" ");
export const COUNT = WORDS.length;
export const DIM = 8;

/** Every word has its own seeded vector: the same word is the same key. */
function vectors(name: string): Float32Array {
  return Float32Array.from(
    WORDS.flatMap((word) => {
      const normal = normalSource(hashText(`${name} ${word}`));
      return Array.from({ length: DIM }, normal);
    }),
  );
}

export const [Q, K, V] = [vectors("query"), vectors("key"), vectors("value")];

function firstTokens(count: number, v: Float32Array, width: number): Record<string, ExampleTensor> {
  const shape = [1, 1, count, DIM];
  return {
    q: floats(Q.subarray(0, count * DIM), shape),
    k: floats(K.subarray(0, count * DIM), shape),
    v: floats(v.subarray(0, count * width), [1, 1, count, width]),
  };
}

/** Values that are unit vectors: the output is then the matrix of weights. */
const UNIT = Float32Array.from({ length: COUNT * COUNT }, (_, at) =>
  Math.floor(at / COUNT) === at % COUNT ? 1 : 0,
);

export interface Recurrence {
  id: string;
  params: ExampleParams;
  extra: Readonly<Record<string, ExampleTensor>>;
}

export interface Film {
  called: Called;
  /** The first DIM x DIM numbers of the state after each token. */
  states: Float32Array[];
  /** [COUNT, COUNT]: how much of the value of token j is in the output of token i. */
  weights: Float32Array;
  softmax: Float32Array;
}

export function film(heed: Heed, { id, params, extra }: Recurrence): Film {
  const states = WORDS.map((_, t) => {
    const inputs = { ...firstTokens(t + 1, V, DIM), ...extra };
    const state = heed.run(id, inputs, { ...params, returnState: true }).state
      ?.data as Float32Array;
    // Where weights are divided by their sum, the state carries that sum beside the values.
    const columns = state.length / DIM;
    return Float32Array.from({ length: DIM * DIM }, (_, at) => {
      return state[Math.floor(at / DIM) * columns + (at % DIM)] as number;
    });
  });
  const inputs = { ...firstTokens(COUNT, UNIT, COUNT), ...extra };
  const called = make(heed, { id, inputs, params });
  const softmax = heed.run("scaled_dot_product", firstTokens(COUNT, UNIT, COUNT), { causal: true });
  return {
    called,
    states,
    weights: called.results.output?.data as Float32Array,
    softmax: softmax.output.data as Float32Array,
  };
}
