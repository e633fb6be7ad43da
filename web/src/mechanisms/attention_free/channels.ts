// The attention-free transformer over one sentence: every channel has weights of its own.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleParams, ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";
import { COUNT, DIM, K, Q, V, WORDS } from "../linear/state.js";

export { COUNT, DIM, WORDS } from "../linear/state.js";

/** What a pair of places has learned: to look at the word before, and a little of its own. */
export function pairBias(): Float32Array {
  const normal = normalSource(hashText("attention-free bias"));
  return Float32Array.from({ length: COUNT * COUNT }, (_, at) => {
    const before = Math.floor(at / COUNT) - 1 - (at % COUNT);
    return 3 * Math.exp(-(before ** 2) / 2) + 0.5 * normal();
  });
}

const rows = (values: ArrayLike<number>, width: number): ExampleTensor =>
  floats(values, [1, 1, COUNT, width]);
const UNIT = rows(
  Array.from({ length: COUNT * COUNT }, (_, at) => (Math.floor(at / COUNT) === at % COUNT ? 1 : 0)),
  COUNT,
);
/** A gate that is open in float32. */
const OPEN = rows(
  Array.from({ length: COUNT * COUNT }, () => 40),
  COUNT,
);
const channelOf = (values: Float32Array, channel: number): number[] =>
  WORDS.map((_, j) => values[j * DIM + channel] as number);

export interface Channel {
  /** All channels. */
  called: Called;
  /** [COUNT, COUNT]: w where it reaches, and 0 beyond. */
  bias: Float32Array;
  /** [COUNT]: the keys of this channel. */
  keys: number[];
  /** [COUNT, COUNT]: the weights of this channel, and those without any bias. */
  weights: Float32Array;
  simple: Float32Array;
  /** [COUNT] of this channel: sigmoid(q), and the output. */
  gates: number[];
  output: number[];
}

/** `local`: how near a pair must be for its bias to count; COUNT is all. */
export function channel(heed: Heed, at: number, local: number): Channel {
  const bias = pairBias();
  const inputs = { q: rows(Q, DIM), k: rows(K, DIM), v: rows(V, DIM) };
  const pairs = { bias: floats(bias, [1, 1, COUNT, COUNT]) };
  const params: ExampleParams = { localWindow: local };
  const called = make(heed, { id: "attention_free", inputs: { ...inputs, ...pairs }, params });
  const keys = channelOf(K, at);
  // The channel's key in every column and unit vectors as values: the output is the row of its weights.
  const alone = {
    q: OPEN,
    k: rows(
      keys.flatMap((key) => WORDS.map(() => key)),
      COUNT,
    ),
    v: UNIT,
  };
  const weights = heed.run("attention_free", { ...alone, ...pairs }, params).output;
  return {
    called,
    bias: bias.map((w, pair) =>
      Math.abs(Math.floor(pair / COUNT) - (pair % COUNT)) < local ? w : 0,
    ),
    keys,
    weights: weights.data as Float32Array,
    simple: heed.run("attention_free", alone, {}).output.data as Float32Array,
    gates: channelOf(Q, at).map((q) => 1 / (1 + Math.exp(-q))),
    output: channelOf(resultOf(called, "output").data, at),
  };
}
