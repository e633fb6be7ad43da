// Transformer-XL's four terms over one sentence. The encodings of the distances are heed's sinusoids; u
// likes the key of one word, v one distance.
import type { Heed } from "heed";
import { floats } from "../../lib/call.js";
import { COUNT, DIM, K, NOTHING, type Problem, QKV, WORDS, words, zeros } from "./terms.js";

/** Largest distance of the sentence: the table has a row for each from -FAR to FAR. */
export const FAR = COUNT - 1;
/** u is the direction of this word's key. */
export const LIKED = WORDS.indexOf("cat");

export interface Preferences {
  /** Lengths of u and v. */
  content: number;
  position: number;
  /** What v likes most. */
  distance: number;
}
export const RESTING: Preferences = { content: 2, position: 3, distance: 2 };

const scaled = (vector: ArrayLike<number>, length: number): number[] => {
  const norm = Math.hypot(...Array.from(vector));
  return Array.from(vector, (value) => (length * value) / norm);
};
const row = (all: ArrayLike<number>, at: number) =>
  Array.from({ length: DIM }, (_, d) => all[at * DIM + d] as number);

/** The encoding of each distance query minus key from 0 to FAR, [FAR + 1, DIM]. */
export function encodings(heed: Heed): Float32Array {
  const x = zeros(1, FAR + 1, DIM);
  return heed.run("sinusoidal", { x }, { base: 100 }).output.data as Float32Array;
}

export function preferences(heed: Heed, { content, position, distance }: Preferences): Problem {
  const codes = encodings(heed);
  // Row FAR + (key minus query): those after the query are never seen.
  const table = Array.from({ length: 2 * FAR + 1 }, (_, at) => row(codes, Math.abs(FAR - at)));
  const relativeKeys = floats(table.flat(), [2 * FAR + 1, DIM]);
  const contentBias = floats(scaled(row(K, LIKED), content), [1, DIM]);
  const positionBias = floats(scaled(row(codes, distance), position), [1, DIM]);
  const none = zeros(2 * FAR + 1, DIM);
  const [q, k] = [words(QKV.q.data), words(QKV.k.data)];
  const { v } = QKV;
  return {
    id: "transformer_xl",
    params: { causal: true },
    inputs: { q, k, v, relativeKeys, contentBias, positionBias },
    terms: [
      { symbol: "q·k", tone: "ink", inputs: { q, k, v, relativeKeys: none } },
      { symbol: "q·r", tone: "query", inputs: { q, k: NOTHING, v, relativeKeys } },
      { symbol: "u·k", tone: "key", inputs: { q: NOTHING, k, v, relativeKeys: none, contentBias } },
      {
        symbol: "v·r",
        tone: "value",
        inputs: { q: NOTHING, k: NOTHING, v, relativeKeys, positionBias },
      },
    ],
  };
}
