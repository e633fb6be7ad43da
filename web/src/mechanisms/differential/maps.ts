// Two attention maps with a noise in common, and their difference. Half of the dimensions belong to each map.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { COUNT, WORDS } from "../linear/state.js";

export { COUNT, WORDS } from "../linear/state.js";

/** Dimensions of one map: those that say what a word looks for, and the one of the noise. */
const DISTINCT = [...new Set(WORDS)];
const HALF = DISTINCT.length + 1;

export interface Setting {
  lambda: number;
  /** The score that loud words have with every query, in both maps. */
  noise: number;
}
export const RESTING: Setting = { lambda: 0.6, noise: 3 };
/** Words that every query hears, though none looks for them. */
export const LOUD: readonly string[] = ["on", "because", "and"];
/** The score of a word with itself. */
const OWN = 4;

/** What a word is, the same for queries and keys: a dimension of its own. */
const kinds = WORDS.map((word) => DISTINCT.map((other) => (other === word ? 1 : 0)));

/** [COUNT, 2 * HALF]: both halves have the noise, the first alone has what is looked for. */
function rows(loudness: (word: string) => number, size: number): ExampleTensor {
  const values = kinds.flatMap((kind, at) => {
    const noise = loudness(WORDS[at] as string);
    return [...kind.map((value) => size * value), noise, ...kind.map(() => 0), noise];
  });
  return floats(values, [1, 1, COUNT, 2 * HALF]);
}

const half = (both: ExampleTensor, second: boolean): ExampleTensor =>
  floats(
    Array.from({ length: COUNT * HALF }, (_, at) => {
      const [row, d] = [Math.floor(at / HALF), at % HALF];
      return both.data[row * 2 * HALF + d + (second ? HALF : 0)] as number;
    }),
    [1, 1, COUNT, HALF],
  );

export interface Maps {
  called: Called;
  /** [COUNT, COUNT] each. */
  first: Float32Array;
  second: Float32Array;
  difference: Float32Array;
}

export function maps(heed: Heed, { lambda, noise }: Setting): Maps {
  const root = Math.sqrt(HALF);
  const q = rows(() => 1, root * OWN);
  const k = rows((word) => (LOUD.includes(word) ? root * noise : 0), 1);
  const called = make(heed, {
    id: "differential",
    inputs: { q, k, v: q, lambda: floats([lambda], [1]) },
    params: { returnWeights: true },
  });
  const alone = (second: boolean) => {
    const inputs = { q: half(q, second), k: half(k, second), v: half(q, second) };
    return heed.run("scaled_dot_product", inputs, { returnWeights: true }).weights
      ?.data as Float32Array;
  };
  return {
    called,
    first: alone(false),
    second: alone(true),
    difference: called.results.weights?.data as Float32Array,
  };
}

/** What a word looks for: where it stands itself, and where it stands again. */
export const wanted = (row: number, column: number): boolean => WORDS[row] === WORDS[column];

/** The share of a row's weight, without its signs, that is on wanted keys. */
export function shareOfWanted(weights: ArrayLike<number>, row: number): number {
  let [good, all] = [0, 0];
  for (let column = 0; column < COUNT; column++) {
    const size = Math.abs(weights[row * COUNT + column] as number);
    all += size;
    if (wanted(row, column)) good += size;
  }
  return good / all;
}
