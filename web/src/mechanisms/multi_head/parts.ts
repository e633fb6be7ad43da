// Four heads over one sentence, and what each of them adds to the output.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";
import {
  HEAD_DIM,
  HEADS,
  MODEL_DIM,
  PROJECTIONS,
  type Projections,
  tokenVectors,
} from "../../lib/vectors.js";
import { COUNT, WORDS } from "../linear/state.js";

export { COUNT, WORDS } from "../linear/state.js";

export const NUM_HEADS = HEADS.length;
/** Numbers of an output row. */
export const OUT = 16;

const X = floats(tokenVectors(WORDS), [1, COUNT, MODEL_DIM]);
/** [NUM_HEADS, HEAD_DIM, MODEL_DIM] of matrices [MODEL_DIM, HEAD_DIM]. */
const stacked = (pick: (of: Projections) => Float32Array): ExampleTensor =>
  floats(
    PROJECTIONS.flatMap((of) =>
      Array.from({ length: HEAD_DIM * MODEL_DIM }, (_, at) => {
        const [d, m] = [Math.floor(at / MODEL_DIM), at % MODEL_DIM];
        return pick(of)[m * HEAD_DIM + d] as number;
      }),
    ),
    [NUM_HEADS, HEAD_DIM, MODEL_DIM],
  );
/** Heads side by side, projected to one row. */
export const W_O = (() => {
  const normal = normalSource(hashText("heads together"));
  const width = NUM_HEADS * HEAD_DIM;
  return floats(
    Array.from({ length: OUT * width }, () => normal() / Math.sqrt(width)),
    [OUT, NUM_HEADS, HEAD_DIM],
  );
})();
const INPUTS = {
  query: X,
  key: X,
  value: X,
  wQ: stacked(({ query }) => query),
  wK: stacked(({ key }) => key),
  wV: stacked(({ value }) => value),
  wO: W_O,
};

export interface Parts {
  called: Called;
  /** Of each head: [COUNT, COUNT] weights, and what it adds to the output [COUNT, OUT]. */
  weights: readonly Float32Array[];
  added: readonly Float32Array[];
  /** [COUNT, OUT] */
  output: Float32Array;
}

/** `factors` multiply what each head adds. */
export function parts(heed: Heed, factors: readonly number[]): Parts {
  const mask = (of: readonly number[]) => floats(of, [NUM_HEADS]);
  const inputs = { ...INPUTS, headMask: mask(factors) };
  const called = make(heed, { id: "multi_head", inputs, params: { returnWeights: true } });
  const all = resultOf(called, "weights").data;
  const alone = (head: number) => {
    const only = factors.map((factor, other) => (other === head ? factor : 0));
    const { output } = heed.run("multi_head", { ...INPUTS, headMask: mask(only) }, {});
    return output.data as Float32Array;
  };
  return {
    called,
    weights: factors.map((_, head) => all.subarray(head * COUNT ** 2, (head + 1) * COUNT ** 2)),
    added: factors.map((_, head) => alone(head)),
    output: resultOf(called, "output").data,
  };
}

export const lengthOf = (all: Float32Array, row: number): number =>
  Math.hypot(...all.subarray(row * OUT, (row + 1) * OUT));
