// One training: what learns, its batches, and looks at what it has learned. Knows no page and no worker.
import type { StepResult } from "heed/training";

/** A step, and the width of the kernel after it where there is one. */
export interface Step extends StepResult {
  readonly width?: number;
}

/** Noisy samples of a curve, and what is made of them. */
export interface Fit {
  /** Of the samples, ascending. */
  x: number[];
  y: number[];
  /** Where the curve and its fit are known. */
  grid: number[];
  truth: number[];
  fitted: number[];
  width: number | null;
  /** Whether a sample counts towards its own prediction. */
  seesItself: boolean;
}

/** A look at what has been learned, between two steps. */
export interface Look {
  step: number;
  /** Of examples that are never trained on: the share that is right, or that is explained. */
  accuracy: number;
  /** The loss of examples that are never trained on, where it is the same measure. */
  heldOut?: number;
  /** Of what is shown: what is given, what is right (-1: nobody can know), what is guessed. */
  tokens: number[];
  targets: number[];
  guesses: number[];
  /** Weights, one matrix a picture. */
  heads: Float32Array[];
  fit?: Fit;
}

export interface Session {
  /** Weights that are learned. */
  readonly parameters: number;
  /** Steps after which it pauses by itself. */
  readonly steps: number;
  /** Milliseconds between two looks while it trains. */
  readonly lookEvery: number;
  step(): Step;
  look(): Look;
  dispose(): void;
}

/** Examples that are trained on, that are tested on and that are shown have generators of their own. */
export const SEEDS = { test: 7_000_001, shown: 7_000_003 };
