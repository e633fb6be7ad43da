// What a figure of maps shows.
import type { Matrix } from "../../lib/matrix.js";
import type { Tone } from "../../lib/plot.js";

/** A small map, shaped as the large one. */
export interface MapPart {
  matrix: Matrix;
  /** The colour of its name, that of its curve. */
  tone?: string;
  /** What joins it to the part before. */
  sign?: string;
}

export interface Maps {
  parts: readonly MapPart[];
  /** Above the large map. */
  heading: string;
  matrix: Matrix;
  /** What a screen reader calls it. */
  label: string;
  /** Of its rows. */
  words: readonly string[];
  /** Drawn as the curves of one row; each is shaped as the large map. */
  lines: readonly { name: string; values: ArrayLike<number>; tone: Tone; dash?: boolean }[];
  axis: { name: string; min: number; max: number; ticks: readonly number[]; digits: number };
}

/** Words with their places: a word may stand twice. */
export const numbered = (words: readonly string[]): string[] =>
  words.map((word, at) => `${at + 1} ${word}`);
