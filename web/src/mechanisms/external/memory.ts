// Words that attend to a learned memory: normalised over the words first, then over the units; beside plain
// softmax over the units.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import { hashText, normalSource } from "../../lib/random.js";
import { COUNT, DIM, Q, WORDS } from "../linear/state.js";

export { COUNT, WORDS } from "../linear/state.js";

export interface Setting {
  units: number;
  /** Added to the score of the first unit with every word. */
  loud: number;
}
export const RESTING: Setting = { units: 8, loud: 4 };
export const MOST = 12;
export const SCALE = 0.5;

/** One dimension more, in which all words agree: the first unit's key may be large there. */
export const QUERIES = WORDS.flatMap((_, i) => [...Q.subarray(i * DIM, (i + 1) * DIM), 1]);
export function memoryKeys({ units, loud }: Setting): number[] {
  return Array.from({ length: units }, (_, unit) => {
    const normal = normalSource(hashText(`memory ${unit}`));
    return [...Array.from({ length: DIM }, normal), unit === 0 ? loud / SCALE : 0];
  }).flat();
}

export interface Memory {
  called: Called;
  /** [COUNT, units] each: normalised over the words; then over the units; over the units alone. */
  columns: Float32Array;
  weights: Float32Array;
  plain: Float32Array;
}

const transposed = (values: Float32Array, rows: number, columns: number): Float32Array =>
  values.map((_, at) => values[(at % rows) * columns + Math.floor(at / rows)] as number);

export function memory(heed: Heed, setting: Setting): Memory {
  const { units } = setting;
  const q = floats(QUERIES, [1, 1, COUNT, DIM + 1]);
  const keys = memoryKeys(setting);
  const memoryK = floats(keys, [1, units, DIM + 1]);
  const params = { scale: SCALE, returnWeights: true };
  const inputs = { q, memoryK, memoryV: memoryK };
  const called = make(heed, { id: "external", inputs, params });
  const k = floats(keys, [1, 1, units, DIM + 1]);
  const weightsOf = (from: typeof q, to: typeof q) =>
    heed.run("attention", { q: from, k: to, v: to }, params).weights?.data as Float32Array;
  return {
    called,
    // A softmax over the words for each unit: units ask, words answer.
    columns: transposed(weightsOf(k, q), units, COUNT),
    weights: resultOf(called, "weights").data,
    plain: weightsOf(q, k),
  };
}

/** How much of all words' weight a unit has. */
export function shareOf(weights: Float32Array, unit: number): number {
  const units = weights.length / COUNT;
  return WORDS.reduce((sum, _, i) => sum + (weights[i * units + unit] as number), 0) / COUNT;
}
