// A stack of blocks that has learned nothing: the stream from block to block, and what each step adds.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";
import { MODEL_DIM, tokenVectors } from "../../lib/vectors.js";
import { COUNT, WORDS } from "../linear/state.js";

export { COUNT } from "../linear/state.js";

export const BLOCKS = 12;
export const DIM = MODEL_DIM;
const HEADS = 2;
const FF = 2 * DIM;

export const ORDERS = ["pre", "post"] as const;
export type Order = (typeof ORDERS)[number];
export interface Setting {
  order: Order;
  /** Of what blocks add. */
  gain: number;
}
export const RESTING: Setting = { order: "pre", gain: 1 };

const drawn = (name: string, fanIn: number, gain: number, shape: number[]): ExampleTensor => {
  const normal = normalSource(hashText(name));
  const count = shape.reduce((product, extent) => product * extent, 1);
  return floats(
    Array.from({ length: count }, () => (gain * normal()) / Math.sqrt(fanIn)),
    shape,
  );
};

type Weights = Readonly<Record<"wQ" | "wK" | "wV" | "wO" | "wUp" | "wDown", ExampleTensor>>;
export function weightsOf(block: number, gain: number): Weights {
  const inner = [HEADS, DIM / HEADS, DIM];
  return {
    wQ: drawn(`block ${block} query`, DIM, 1, inner),
    wK: drawn(`block ${block} key`, DIM, 1, inner),
    wV: drawn(`block ${block} value`, DIM, 1, inner),
    wO: drawn(`block ${block} output`, DIM, gain, [DIM, HEADS, DIM / HEADS]),
    wUp: drawn(`block ${block} up`, DIM, 1, [FF, DIM]),
    wDown: drawn(`block ${block} down`, FF, gain, [DIM, FF]),
  };
}
const silent = ({ shape }: ExampleTensor): ExampleTensor =>
  floats(new Float32Array(shape.reduce((product, extent) => product * extent, 1)), [...shape]);

export const FIRST = tokenVectors(WORDS);
const rows = (values: Float32Array): ExampleTensor => floats(values, [1, COUNT, DIM]);
const minus = (a: Float32Array, b: Float32Array) => a.map((x, at) => x - (b[at] as number));

export interface Step {
  /** [COUNT, DIM] each: what attention adds, what the network adds, and the stream behind the block. */
  attention: Float32Array;
  network: Float32Array;
  after: Float32Array;
}

/** What attention and network add, before any norm that comes after. */
function added(heed: Heed, x: Float32Array, weights: Weights, order: Order) {
  const run = (from: Float32Array, own: Weights) =>
    heed.run("transformer_block", { x: rows(from), ...own }, { normOrder: "pre" }).output
      .data as Float32Array;
  const noAttention = { ...weights, wO: silent(weights.wO) };
  if (order === "pre") {
    const between = run(x, { ...weights, wDown: silent(weights.wDown) });
    return { attention: minus(between, x), network: minus(run(x, weights), between) };
  }
  const [query, { wQ, wK, wV, wO }] = [rows(x), weights];
  const inputs = { query, key: query, value: query, wQ, wK, wV, wO };
  const attention = heed.run("multi_head", inputs, {}).output.data as Float32Array;
  const sum = x.map((value, at) => value + (attention[at] as number));
  const { data } = heed.layerNorm({ data: sum, shape: [COUNT, DIM] });
  const between = data as Float32Array;
  // The norm in front of the network finds rows that are normed already.
  return { attention, network: minus(run(between, noAttention), between) };
}

export interface Stack {
  /** The last block. */
  called: Called;
  steps: readonly Step[];
}

export function stack(heed: Heed, { order, gain }: Setting): Stack {
  const steps: Step[] = [];
  let x = FIRST;
  let called: Called | null = null;
  for (let block = 0; block < BLOCKS; block++) {
    const weights = weightsOf(block, gain);
    const call = {
      id: "transformer_block",
      inputs: { x: rows(x), ...weights },
      params: { normOrder: order },
    };
    called = make(heed, call);
    const after = resultOf(called, "output").data;
    steps.push({ ...added(heed, x, weights, order), after });
    x = after;
  }
  return { called: called as Called, steps };
}

/** The mean length of the rows of all words. */
export function lengthOf(values: Float32Array): number {
  let sum = 0;
  for (let row = 0; row < COUNT; row++)
    sum += Math.hypot(...values.subarray(row * DIM, (row + 1) * DIM)) / COUNT;
  return sum;
}

/** The mean cosine between the rows of the same word. */
export function likeness(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let row = 0; row < COUNT; row++) {
    const rowOf = (all: Float32Array) => all.subarray(row * DIM, (row + 1) * DIM);
    const [x, y] = [rowOf(a), rowOf(b)];
    const dot = x.reduce((total, value, d) => total + value * (y[d] as number), 0);
    sum += dot / Math.hypot(...x) / Math.hypot(...y) / COUNT;
  }
  return sum;
}
