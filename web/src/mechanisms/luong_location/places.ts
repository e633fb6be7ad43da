// A sentence and its translation, aligned in two ways: by places alone, and by what the words mean.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";

/** Pairs of words that mean the same: English asks, German answers. */
const PAIRS: readonly (readonly [string, string])[] = [
  ["because", "weil"],
  ["the", "die"],
  ["cat", "Katze"],
  ["on", "auf"],
  ["the", "der"],
  ["mat", "Matte"],
  ["was", "war"],
  ["very", "sehr"],
  ["tired", "müde"],
];
export const COUNT = PAIRS.length;
export const TARGET: readonly string[] = PAIRS.map(([english]) => english);

export const ORDERS = ["same", "last", "reversed"] as const;
export type Order = (typeof ORDERS)[number];
/** Which pair stands at each place of the German sentence. */
export const SOURCES: Readonly<Record<Order, readonly number[]>> = {
  same: [0, 1, 2, 3, 4, 5, 6, 7, 8],
  // As German has it: the verb ends the clause.
  last: [0, 1, 2, 3, 4, 5, 7, 8, 6],
  reversed: [8, 7, 6, 5, 4, 3, 2, 1, 0],
};
export const sourceWords = (order: Order): string[] =>
  SOURCES[order].map((pair) => PAIRS[pair]?.[1] ?? "");

/** Wavelengths in places. */
const WAVES = [6, 10, 18, 36];
/** Sines and cosines: the product of two codes depends on how far apart they are, and is largest at 0. */
export const codeOf = (place: number): number[] =>
  WAVES.flatMap((wave) => {
    const angle = (2 * Math.PI * place) / wave;
    return [Math.sin(angle), Math.cos(angle)];
  });
const meaningOf = (pair: number): number[] => PAIRS.map((_, at) => (at === pair ? 1 : 0));
const CODE = 2 * WAVES.length;
const DIM = CODE + COUNT;
/** The score of a word with its translation. */
export const MEANING = 4;

const rowsOf = (all: readonly (readonly number[])[]): ExampleTensor =>
  floats(all.flat(), [1, 1, COUNT, DIM]);
const NO_CODE = Array.from({ length: CODE }, () => 0);
const NO_MEANING = PAIRS.map(() => 0);

export interface Alignment {
  /** By places. */
  called: Called;
  /** [COUNT, COUNT]: English words, German places. */
  byPlace: Float32Array;
  byMeaning: Float32Array;
}

/** What a query knows is its own place and its meaning; `sharpness` is learned with the matrix of places. */
export function align(heed: Heed, order: Order, sharpness: number): Alignment {
  const q = rowsOf(PAIRS.map((_, i) => [...codeOf(i), ...meaningOf(i)]));
  const source = SOURCES[order];
  const k = rowsOf(source.map((pair) => [...NO_CODE, ...meaningOf(pair).map((x) => MEANING * x)]));
  const matrix = source.flatMap((_, j) => [...codeOf(j).map((x) => sharpness * x), ...NO_MEANING]);
  const params = { returnWeights: true };
  const called = make(heed, {
    id: "luong_location",
    inputs: { q, v: k, locationWeight: floats(matrix, [COUNT, DIM]) },
    params,
  });
  const other = make(heed, { id: "luong_dot", inputs: { q, k, v: k }, params });
  return {
    called,
    byPlace: resultOf(called, "weights").data,
    byMeaning: resultOf(other, "weights").data,
  };
}

/** Where the translation of an English word stands. */
export const placeOf = (order: Order, word: number): number => SOURCES[order].indexOf(word);

/** How many English words give most to their translation. */
export function found(weights: ArrayLike<number>, order: Order): number {
  return PAIRS.filter((_, i) => {
    const row = Array.from({ length: COUNT }, (_, j) => weights[i * COUNT + j] as number);
    return row.indexOf(Math.max(...row)) === placeOf(order, i);
  }).length;
}
