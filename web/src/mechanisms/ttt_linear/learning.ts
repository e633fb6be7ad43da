// A sentence that is read again and again, and a small model that learns it while it reads.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";
import { COUNT, WORDS } from "../linear/state.js";

export { COUNT, WORDS } from "../linear/state.js";

export const DIM = 16;
export const READINGS = 4;
export const TOKENS = READINGS * COUNT;
export const wordAt = (token: number): string => WORDS[token % COUNT] as string;

export const BATCHES = [1, 4, COUNT, 2 * COUNT] as const;
export interface Setting {
  miniBatch: (typeof BATCHES)[number];
  /** Of a step of gradient descent. */
  rate: number;
}
export const RESTING: Setting = { miniBatch: 1, rate: 0.6 };

/** A key of length 1 for each word. */
function wordKey(word: string): number[] {
  const normal = normalSource(hashText(`lesson key ${word}`));
  const key = Array.from({ length: DIM }, normal);
  return key.map((value) => value / Math.hypot(...key));
}

/** The key plus a row of mean 0 and variance 1: what a linear map under a norm can give. */
function wordValue(word: string): number[] {
  const normal = normalSource(hashText(`lesson value ${word}`));
  const row = Array.from({ length: DIM }, normal);
  const mean = row.reduce((sum, value) => sum + value, 0) / DIM;
  const deviation = Math.hypot(...row.map((value) => value - mean)) / Math.sqrt(DIM);
  const key = wordKey(word);
  return row.map((value, d) => (value - mean) / deviation + (key[d] as number));
}

const every = (rowOf: (word: string) => number[]) =>
  Array.from({ length: TOKENS }, (_, at) => rowOf(wordAt(at))).flat();
export const KEYS = every(wordKey);
export const VALUES = every(wordValue);

/** Two models, that of the mini-batch's begin and that of now, start alike: weights and a row of biases. */
export const STATE_ROWS = DIM + 1;
export function firstModel(): number[] {
  const normal = normalSource(hashText("lesson model"));
  const weights = Array.from({ length: DIM * DIM }, normal);
  return [...weights, ...Array.from({ length: DIM }, () => 0)];
}
const START = floats([...firstModel(), ...firstModel()], [1, 1, 2 * STATE_ROWS, DIM]);

const rows = (values: readonly number[], from: number, to: number): ExampleTensor =>
  floats(values.slice(from * DIM, to * DIM), [1, 1, to - from, DIM]);

/** Reads the first tokens; each then asks with the given keys. */
function read(
  heed: Heed,
  { miniBatch, rate }: Setting,
  count: number,
  asked: ExampleTensor,
): Called {
  const beta = floats(new Float32Array(count).fill(rate), [1, 1, count]);
  const inputs = { q: asked, k: rows(KEYS, 0, count), v: rows(VALUES, 0, count), beta };
  const params = { miniBatch, returnState: true };
  return make(heed, { id: "ttt_linear", inputs: { ...inputs, initialState: START }, params });
}

/** Half the mean square that a token's prediction is off. */
const lossesOf = (predictions: ArrayLike<number>, first: number): number[] =>
  Array.from({ length: predictions.length / DIM }, (_, at) => {
    let squares = 0;
    for (let d = 0; d < DIM; d++) {
      const wanted = VALUES[(first + at) * DIM + d] as number;
      squares += ((predictions[at * DIM + d] as number) - wanted) ** 2;
    }
    return squares / 2 / DIM;
  });

export interface Lesson {
  called: Called;
  /** [TOKENS] each: the loss of a token before its step and after it. */
  before: number[];
  after: number[];
}

export function lesson(heed: Heed, setting: Setting): Lesson {
  const called = read(heed, setting, TOKENS, rows(KEYS, 0, TOKENS));
  // Each token asks with the key of the next one: the model does not know its value yet.
  const ahead = read(heed, setting, TOKENS - 1, rows(KEYS, 1, TOKENS));
  const unread = read(heed, { ...setting, rate: 0 }, 1, rows(KEYS, 0, 1));
  const predicted = (of: Called) => resultOf(of, "output").data;
  return {
    called,
    before: [...lossesOf(predicted(unread), 0), ...lossesOf(predicted(ahead), 1)],
    after: lossesOf(predicted(called), 0),
  };
}

/** The model after so many tokens [STATE_ROWS, DIM], and what the last of them changed. */
export function modelAfter(heed: Heed, setting: Setting, count: number) {
  const after = (tokens: number) => {
    if (tokens === 0) return Float32Array.from(firstModel());
    const called = read(heed, setting, tokens, rows(KEYS, 0, tokens));
    return resultOf(called, "state").data.subarray(STATE_ROWS * DIM);
  };
  const [model, earlier] = [after(count), after(count - 1)];
  return { model, change: model.map((value, at) => value - (earlier[at] as number)) };
}

export const meanOf = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;
