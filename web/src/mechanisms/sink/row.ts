// One query and eight keys whose scores are moved up and down together. The scores are the query, the
// keys are unit vectors and so are the values: the output is the row of weights.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";

export const SCORES: readonly number[] = [2.5, 1.5, 1, 0.5, 0, -0.5, -1, -2];
export const KEYS = SCORES.length;
export const SHIFTS: readonly number[] = Array.from({ length: 65 }, (_, at) => (at - 32) / 4);

const UNIT = floats(
  Array.from({ length: KEYS * KEYS }, (_, at) => (Math.floor(at / KEYS) === at % KEYS ? 1 : 0)),
  [1, 1, KEYS, KEYS],
);

export type WithSink = "sink" | "softmax1";

export interface Rows {
  called: Called;
  /** [shifts, KEYS] */
  weights: Float32Array;
  /** Softmax without a sink, of the unshifted row: the same at every shift. */
  plain: Float32Array;
}

export function rows(heed: Heed, id: WithSink, sinkLogit: number): Rows {
  const q = floats(
    SHIFTS.flatMap((shift) => SCORES.map((score) => score + shift)),
    [1, 1, SHIFTS.length, KEYS],
  );
  const sinks = id === "sink" && { sinks: floats([sinkLogit], [1]) };
  const inputs = { q, k: UNIT, v: UNIT, ...sinks };
  const called = make(heed, { id, inputs, params: { scale: 1, returnWeights: true } });
  const row = floats(SCORES, [1, 1, 1, KEYS]);
  const plain = heed.run("scaled_dot_product", { q: row, k: UNIT, v: UNIT }, { scale: 1 });
  return {
    called,
    weights: called.results.weights?.data as Float32Array,
    plain: plain.output.data as Float32Array,
  };
}

/** The weights of one shift, and what goes to no key. */
export function rowAt({ weights }: Rows, shift: number): { keys: Float32Array; nowhere: number } {
  const at = SHIFTS.indexOf(shift);
  const keys = weights.subarray(at * KEYS, (at + 1) * KEYS);
  return { keys, nowhere: 1 - keys.reduce((sum, weight) => sum + weight, 0) };
}
