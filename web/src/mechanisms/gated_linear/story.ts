// Sentences read into a state of fixed size. Values are unit vectors, one for each token: column j of the
// state is then what it still holds of token j, and outputs are the weights that they stand for.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleParams, ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";

export const WORDS: readonly string[] =
  "Ada has a red boat . Ben has a blue car . Ada sells the boat".split(" ");
export const COUNT = WORDS.length;
export const DIM = 12;
const STOP = ".";

/** Words of one kind are alike; the full stop is alone. */
const KINDS = ["Ada Ben", "has sells", "a the", "red blue", "boat car", STOP].map((words) =>
  words.split(" "),
);
/** The product of the keys of two words of one kind. */
export const LIKENESS = 0.4;

/** Directions at right angles to each other, none of them a channel [DIM][DIM]. */
const AXES: readonly (readonly number[])[] = (() => {
  const normal = normalSource(hashText("axes of the words"));
  const axes: number[][] = [];
  while (axes.length < DIM) {
    let axis = Array.from({ length: DIM }, normal);
    for (const other of axes) {
      const product = axis.reduce((sum, value, d) => sum + value * (other[d] as number), 0);
      axis = axis.map((value, d) => value - product * (other[d] as number));
    }
    const length = Math.hypot(...axis);
    axes.push(axis.map((value) => value / length));
  }
  return axes;
})();

/** Of length 1: mostly its own axis, and a part of that of the other word of its kind. */
function directionOf(word: string): number[] {
  const kind = KINDS.findIndex((words) => words.includes(word));
  const place = KINDS[kind]?.indexOf(word) ?? 0;
  const [own, other] = [AXES[2 * kind + place], AXES[2 * kind + 1 - place]] as number[][];
  const angle = word === STOP ? 0 : Math.asin(LIKENESS) / 2;
  return (own as number[]).map(
    (value, d) => Math.cos(angle) * value + Math.sin(angle) * (other?.[d] as number),
  );
}

/** Query and key of a token are the direction of its word. */
export const VECTORS: Float32Array = Float32Array.from(WORDS.flatMap(directionOf));

export interface Recurrence {
  id: string;
  params?: ExampleParams;
  q?: Float32Array;
  /** null: the mechanism takes none. */
  k?: Float32Array | null;
  /** [COUNT] or [COUNT, width] each, cut where the reading stops. */
  perToken?: Readonly<Record<string, Float32Array>>;
  /** The same however far one has read. */
  fixed?: Readonly<Record<string, ExampleTensor>>;
  /** Heads that read the same, and the one that is shown. */
  heads?: number;
  head?: number;
}

function inputsOf(recurrence: Recurrence, count: number): Record<string, ExampleTensor> {
  const { q = VECTORS, k = VECTORS, perToken = {}, fixed = {}, heads = 1 } = recurrence;
  const rows = (all: Float32Array): ExampleTensor => {
    const width = all.length / COUNT;
    const own = [...all.subarray(0, count * width)];
    const shape = [1, heads, count, ...(width === 1 ? [] : [width])];
    return floats(Array.from({ length: heads }, () => own).flat(), shape);
  };
  const unit = Float32Array.from({ length: COUNT * COUNT }, (_, at) =>
    Number(Math.floor(at / COUNT) === at % COUNT),
  );
  return {
    q: rows(q),
    ...(k && { k: rows(k) }),
    v: rows(unit),
    ...Object.fromEntries(Object.entries(perToken).map(([name, all]) => [name, rows(all)])),
    ...fixed,
  };
}

export interface Film {
  called: Called;
  /** After each token [rows, COUNT]: what the state holds of every token. */
  states: Float32Array[];
  rows: number;
  /** [COUNT, COUNT]: how much of the value of token j is in the output of token i. */
  weights: Float32Array;
}

/** The columns of the values; where weights are divided by their sum, that sum stands behind them. */
function ofValues(state: Float32Array, columns: number): Float32Array {
  return Float32Array.from({ length: (state.length / columns) * COUNT }, (_, at) => {
    return state[Math.floor(at / COUNT) * columns + (at % COUNT)] as number;
  });
}

export function film(heed: Heed, recurrence: Recurrence): Film {
  const { id, params = {}, heads = 1, head = 0 } = recurrence;
  const shown = (data: Float32Array) => {
    const size = data.length / heads;
    return data.subarray(head * size, (head + 1) * size);
  };
  const states = WORDS.map((_, last) => {
    const asked = {
      id,
      inputs: inputsOf(recurrence, last + 1),
      params: { ...params, returnState: true },
    };
    const { data, shape } = resultOf(make(heed, asked), "state");
    return ofValues(shown(data), shape.at(-1) as number);
  });
  const called = make(heed, { id, inputs: inputsOf(recurrence, COUNT), params });
  const rows = (states[0] as Float32Array).length / COUNT;
  return { called, states, rows, weights: shown(resultOf(called, "output").data) };
}

export const transposed = (state: Float32Array): Float32Array => {
  const rows = state.length / COUNT;
  return Float32Array.from(
    state,
    (_, at) => state[(at % rows) * COUNT + Math.floor(at / rows)] as number,
  );
};

/** Every `size` rows as one: how much they hold of each token. */
export const bandsOf = (state: Float32Array, size: number): Float32Array =>
  Float32Array.from({ length: state.length / size }, (_, at) => {
    const first = Math.floor(at / COUNT) * size * COUNT;
    return sizeOf(state.subarray(first, first + size * COUNT), at % COUNT);
  });

/** The size of what a state holds of a token. */
function sizeOf(state: Float32Array, token: number): number {
  let squares = 0;
  for (let at = token; at < state.length; at += COUNT) squares += (state[at] as number) ** 2;
  return Math.sqrt(squares);
}

/** The share of a token's trace that is left after each token from its own on; 0 where it wrote none. */
export function tracesOf({ states }: Film, token: number): number[] {
  const written = sizeOf(states[token] as Float32Array, token);
  return states.slice(token).map((state) => (written === 0 ? 0 : sizeOf(state, token) / written));
}

export function softmaxWeights(heed: Heed, recurrence: Recurrence): Float32Array {
  const { q, k, v } = inputsOf(recurrence, COUNT) as Record<"q" | "k" | "v", ExampleTensor>;
  const params = { causal: true, scale: 1, returnWeights: true };
  return heed.run("scaled_dot_product", { q, k, v }, params).weights?.data as Float32Array;
}

/** What a full stop leaves, beside what every token leaves. */
const stopFactor = (word: string | undefined, stop: number) => (word === STOP ? stop : 1);

/** Logarithms [COUNT]: every token keeps a share of the state. */
export const tokenDecay = (kept: number, stop: number): Float32Array =>
  Float32Array.from(WORDS, (word) => Math.log(kept * stopFactor(word, stop)));

/** Logarithms [COUNT, DIM]: from the channel that keeps most to the one that keeps least, in equal ratios. */
export const channelDecay = (slow: number, fast: number, stop: number): Float32Array =>
  Float32Array.from({ length: COUNT * DIM }, (_, at) => {
    const part = (at % DIM) / (DIM - 1);
    return (
      (1 - part) * Math.log(slow) +
      part * Math.log(fast) +
      Math.log(stopFactor(WORDS[Math.floor(at / DIM)], stop))
    );
  });

export const everyToken = (value: number): Float32Array => new Float32Array(COUNT).fill(value);
