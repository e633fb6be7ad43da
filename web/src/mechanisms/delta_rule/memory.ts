// People and their colours, written one after another into a state of fixed size. Every number comes
// from heed: the state after t tokens is that of a call with t tokens.

import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { t } from "../../lib/messages.js";

export const PEOPLE = ["Ada", "Ben", "Cleo", "Dan"] as const;
export const COLOURS = [t`red`, t`blue`, t`green`, t`gold`] as const;
export const DIM = 4;

/** Person and colour of each token: two people change their minds. */
export const TOKENS: readonly (readonly [person: number, colour: number])[] = [
  [0, 0],
  [1, 1],
  [2, 2],
  [0, 3],
  [3, 1],
  [1, 0],
  [0, 2],
];

export const tokenName = (t: number): string => {
  const [person = 0, colour = 0] = TOKENS[t] ?? [];
  return `${PEOPLE[person]}: ${COLOURS[colour]}`;
};

/** Unit vectors with the same inner product `overlap` for every pair: keys that are alike. */
export function personKeys(overlap: number): Float32Array {
  // a I + b J with rows of length 1: 2ab + n b^2 = overlap, (a + b)^2 + (n - 1) b^2 = 1.
  const n = PEOPLE.length;
  const a = Math.sqrt(1 - overlap);
  const b = (-a + Math.sqrt(a * a + n * overlap)) / n;
  return Float32Array.from({ length: n * DIM }, (_, at) =>
    Math.floor(at / DIM) === at % DIM ? a + b : b,
  );
}

export interface Step {
  /** [DIM, DIM] each, keys by values; after = before + erased + written. */
  before: Float32Array;
  erased: Float32Array;
  written: Float32Array;
  after: Float32Array;
  /** The additive state (linear attention) after the same tokens. */
  additive: Float32Array;
  called: Called;
}

function tokens(overlap: number, count: number, lastIsEmpty: boolean) {
  const keys = personKeys(overlap);
  const k = new Float32Array(count * DIM);
  const v = new Float32Array(count * DIM);
  for (let t = 0; t < count; t++) {
    const [person = 0, colour = 0] = TOKENS[t] ?? [];
    k.set(keys.subarray(person * DIM, (person + 1) * DIM), t * DIM);
    if (!(lastIsEmpty && t === count - 1)) v[t * DIM + colour] = 1;
  }
  const shape = [1, 1, count, DIM];
  return { q: floats(k, shape), k: floats(k, shape), v: floats(v, shape) };
}

function deltaCall(heed: Heed, overlap: number, beta: number, count: number, lastIsEmpty: boolean) {
  const inputs: Record<string, ExampleTensor> = {
    ...tokens(overlap, count, lastIsEmpty),
    beta: floats(new Float32Array(count).fill(beta), [1, 1, count]),
  };
  return make(heed, { id: "delta_rule", inputs, params: { returnState: true } });
}

export function stepOf(heed: Heed, overlap: number, beta: number, t: number): Step {
  const called = deltaCall(heed, overlap, beta, t + 1, false);
  const after = resultOf(called, "state").data;
  // A token whose value is 0 erases and writes nothing.
  const emptied = resultOf(deltaCall(heed, overlap, beta, t + 1, true), "state").data;
  const before =
    t === 0
      ? new Float32Array(DIM * DIM)
      : resultOf(deltaCall(heed, overlap, beta, t, false), "state").data;
  const additive = heed.run("linear", tokens(overlap, t + 1, false), {
    featureMap: "identity",
    weightSum: "free",
    causal: true,
    returnState: true,
  }).state?.data as Float32Array;
  return {
    before,
    erased: after.map((_, at) => (emptied[at] as number) - (before[at] as number)),
    written: after.map((value, at) => value - (emptied[at] as number)),
    after,
    additive: additive.subarray(0, DIM * DIM),
    called,
  };
}

export interface Recall {
  person: string;
  /** The colour last told, and how much of it the state answers with: 1 is right. */
  wanted: string;
  delta: number[];
  additive: number[];
}

/** What both states answer when asked for each person told so far: S^T k. */
export function recall({ after, additive }: Step, overlap: number, t: number): Recall[] {
  const keys = personKeys(overlap);
  const last = new Map(TOKENS.slice(0, t + 1));
  const answer = (state: Float32Array, person: number) =>
    Array.from({ length: DIM }, (_, c) => {
      let sum = 0;
      for (let r = 0; r < DIM; r++) {
        sum += (state[r * DIM + c] as number) * (keys[person * DIM + r] as number);
      }
      return sum;
    });
  return [...last].sort().map(([person, colour]) => ({
    person: PEOPLE[person] as string,
    wanted: COLOURS[colour] as string,
    delta: answer(after, person),
    additive: answer(additive, person),
  }));
}
