// Attention of a sentence, and the gate that each word has on what it gathers.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";
import { COUNT, DIM, K, Q, V, WORDS } from "../linear/state.js";

export { COUNT, DIM, WORDS } from "../linear/state.js";

/** Words that need nothing here: what they gather is noise to them. */
export const IDLE: readonly string[] = ["the", "on", "because", "and"];

export const GATES = ["channel", "head"] as const;
export type GateKind = (typeof GATES)[number];

export interface Setting {
  kind: GateKind;
  /** Length of the gate's logits: 0 leaves every gate half open. */
  sure: number;
}
export const RESTING: Setting = { kind: "channel", sure: 3 };

/** A gate's logit before it is scaled: up for words that need something, and a little of each channel. */
const openness = (word: string): number[] => {
  const normal = normalSource(hashText(`gate ${word}`));
  const wants = IDLE.includes(word) ? -1 : 1;
  return Array.from({ length: DIM }, () => wants + 0.6 * normal());
};
const mean = (values: readonly number[]) =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/** [COUNT, DIM], or one logit a word. */
export function gateLogits({ kind, sure }: Setting): ExampleTensor {
  const rows = WORDS.map(openness).map((row) => (kind === "head" ? [mean(row)] : row));
  const width = kind === "head" ? 1 : DIM;
  const logits = rows.flat().map((value) => sure * value);
  return floats(logits, [1, 1, COUNT, width]);
}

export interface Gated {
  called: Called;
  /** [COUNT, DIM] each. */
  attended: Float32Array;
  gates: Float32Array;
  output: Float32Array;
  /** [COUNT]: what all weights of a row are together. */
  sums: number[];
}

export function gated(heed: Heed, setting: Setting): Gated {
  const rows = (values: Float32Array) => floats(values, [1, 1, COUNT, DIM]);
  const inputs = { q: rows(Q), k: rows(K), v: rows(V) };
  const outputGate = gateLogits(setting);
  const params = { returnWeights: true };
  const called = make(heed, { id: "gated", inputs: { ...inputs, outputGate }, params });
  const plain = heed.run("attention", inputs, {});
  const width = outputGate.data.length / COUNT;
  const weights = resultOf(called, "weights").data;
  return {
    called,
    attended: plain.output.data as Float32Array,
    gates: Float32Array.from({ length: COUNT * DIM }, (_, at) => {
      const [row, channel] = [Math.floor(at / DIM), at % DIM];
      const logit = outputGate.data[row * width + (channel % width)] as number;
      return 1 / (1 + Math.exp(-logit));
    }),
    output: resultOf(called, "output").data,
    sums: WORDS.map((_, i) =>
      weights.subarray(i * COUNT, (i + 1) * COUNT).reduce((sum, weight) => sum + weight, 0),
    ),
  };
}

export const lengthOf = (all: Float32Array, row: number): number =>
  Math.hypot(...all.subarray(row * DIM, (row + 1) * DIM));
