// Everything a link restores, its defaults and its limits. Plain data: no DOM, no Svelte.

import { EVERYTHING, type MaskRules } from "./mask.js";
import type { Cell } from "./matrix.js";
import { inEnglish, t } from "./messages.js";

export const VIEWS = ["x", "q", "k", "v", "scores", "mask", "weights", "output"] as const;
export type View = (typeof VIEWS)[number];

export const EXAMPLES = ["dot", "lengths", "kernel"] as const;
export type Example = (typeof EXAMPLES)[number];

export const KERNELS = ["gaussian", "boxcar", "constant", "triangular"] as const;
export type Kernel = (typeof KERNELS)[number];

/** Q [2, 2], K [3, 2] and V [3, 2] of the first worked example, row-major, in this order. */
export const DOT_NUMBERS: readonly number[] = [1, 0, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 2, 1, 1];

export interface Snapshot extends MaskRules {
  text: string;
  head: number;
  view: View;
  /** Weights as arcs between the words. */
  arcs: boolean;
  temperature: number;
  softcap: number | null;
  alibi: number;
  pin: Cell | null;
  example: Example | null;
  dotNumbers: readonly number[];
  validLengths: readonly [number, number];
  kernel: Kernel;
  width: number;
}

const SENTENCE = t`The cat sat on the mat because the cat was tired.`;

/** What a link does not name, in every language: the same link shows the same in all of them. */
export const DEFAULTS: Snapshot = {
  ...EVERYTHING,
  text: inEnglish(SENTENCE),
  head: 0,
  view: "weights",
  arcs: false,
  temperature: 1,
  softcap: null,
  alibi: 0,
  pin: null,
  example: null,
  dotNumbers: DOT_NUMBERS,
  validLengths: [2, 3],
  kernel: "gaussian",
  width: 1,
};

/** The page as it begins. */
export const START: Snapshot = { ...DEFAULTS, text: SENTENCE };

/** Ranges of the sliders; links outside them are brought back inside. */
export const TEMPERATURE_RANGE = [0.1, 10] as const;
export const SOFTCAP_RANGE = [0.5, 50] as const;
export const ALIBI_RANGE = [0, 2] as const;
export const WIDTH_RANGE = [0.1, 3] as const;
export const MAX_TEXT = 400;
export const MAX_NUMBER = 100;
