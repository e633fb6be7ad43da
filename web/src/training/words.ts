// What the page says and shows of a task. A task is a folder: what is drawn, a session for the worker,
// what it may be learned with, and these words.
import type { Rows } from "../lib/file.js";
import type { Cell, Matrix } from "../lib/matrix.js";
import { valueAt } from "../lib/matrix.js";
import { t } from "../lib/messages.js";
import type { Axis } from "../lib/plot.js";
import type { Look } from "./session.js";
import type { Variant, Variants } from "./variants.js";

export interface Picture {
  title: string;
  matrix: Matrix;
}

interface Place {
  shown: string;
  guess: string;
  state: "right" | "wrong" | "unknown";
}

/** A row of what is given over a row of guesses. */
export interface Example {
  given: string;
  guessed: string;
  places: readonly Place[];
  /** Of what nobody can know. */
  remark: string;
}

/** Milliseconds between two steps. */
export const PACES = [
  { value: 1000, words: t`one a second` },
  { value: 100, words: t`ten a second` },
  { value: 0, words: t`as fast as it goes` },
] as const;

export type MeasureId = "loss" | "accuracy" | "width";

/** Something that is plotted against steps. */
export interface Measure {
  id: MeasureId;
  words: string;
  title: string;
  axis: Pick<Axis, "name" | "max" | "ticks">;
  /** A value to compare with, such as that of guessing. */
  reference?: { name: string; value: number };
}

export interface TaskWords {
  words: string;
  title: string;
  lead: string;
  source: { words: string; href: string };
  variants: Variants<Variant>;
  /** What a variant is of. */
  choice: string;
  /** To begin with. */
  pace: (typeof PACES)[number]["value"];
  /** What the share that is right is a share of: "98.0 % ...". */
  share: (percent: string) => string;
  /** Unit of the loss: "0.031 nats". */
  loss: (loss: string) => string;
  measures: readonly Measure[];
  /** What a step trains on and what accuracy is of. */
  caption: string;
  example?: (look: Look) => Example;
  headsTitle: string;
  headsCaption: string;
  pictures: (look: Look) => Picture[];
  /** Pictures of a layer: a row each. Absent: as many as fit. */
  inLayer?: number;
  /** The picture to show until one is chosen. */
  favourite: (pictures: readonly Picture[], look: Look) => number;
  /** What a picture shows as a whole, and what a cell of it does. */
  readout: (picture: Picture, look: Look) => string;
  sentence: (picture: Picture, cell: Cell, look: Look) => string;
  table: (pictures: readonly Picture[], look: Look) => Rows;
}

/** Percentages from 0 to 100. */
export const PERCENT = { max: 100, ticks: [0, 25, 50, 75, 100] };

/** Cross-entropy, up to `most` on its axis, and the share that is right. One of `classes` may be guessed. */
export const crossEntropy = (
  axes: { loss: string; accuracy: string },
  most: number,
  classes: number,
): readonly Measure[] => [
  {
    id: "loss",
    words: t`Loss`,
    title: t`Loss against steps`,
    axis: { name: axes.loss, max: most, ticks: Array.from({ length: most + 1 }, (_, n) => n) },
    reference: { name: t`guessing`, value: Math.log(classes) },
  },
  {
    id: "accuracy",
    words: t`Accuracy`,
    title: t`Accuracy against steps`,
    axis: { name: axes.accuracy, ...PERCENT },
  },
];

/** Each token and what is made of it, both by the same names. */
export const tokenPlaces = (
  { tokens, targets, guesses }: Look,
  nameOf: (token: number) => string,
) =>
  tokens.map((token, place) => {
    const guess = guesses[place] ?? -1;
    return {
      shown: nameOf(token),
      guess: nameOf(guess),
      state: stateOf(guess, targets[place] ?? -1),
    };
  });

/** Signed weights are a score: mechanisms that add and take away have both signs. */
export const kindOf = (values: Float32Array): "weight" | "score" =>
  values.every((value) => value >= 0) ? "weight" : "score";

/** The mean weight of a column in each row, and in how many rows it is larger than all others. */
export function meanAt({ matrix }: Picture, columns: readonly number[]) {
  let [sum, most] = [0, 0];
  columns.forEach((column, row) => {
    const weights = Array.from({ length: matrix.columnCount }, (_, at) => valueAt(matrix, row, at));
    const own = weights.splice(column, 1)[0] ?? 0;
    sum += own;
    if (own > Math.max(...weights)) most++;
  });
  return { mean: sum / columns.length, most, count: columns.length };
}

export const stateOf = (guess: number, target: number): Place["state"] =>
  target < 0 ? "unknown" : guess === target ? "right" : "wrong";

export const nats = (loss: string): string => t`${loss} nats`;
