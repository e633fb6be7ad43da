// Loss and accuracy against steps, as a plot and as a table.
import type { Rows } from "../lib/file.js";
import { fixed } from "../lib/format.js";
import { decimal, t } from "../lib/messages.js";
import type { Plot } from "../lib/plot.js";
import { STEPS } from "./session.js";
import { LETTERS } from "./task.js";
import type { Point } from "./training.svelte.js";

export type Measure = "loss" | "accuracy";

export const MEASURES: readonly { value: Measure; words: string }[] = [
  { value: "loss", words: t`Loss` },
  { value: "accuracy", words: t`Accuracy` },
];

interface Known {
  step: number;
  accuracy: number;
}

/** Of guessing any letter. */
const GUESSING = Math.log(LETTERS.length);
const ACCURACY_TICKS = [0, 25, 50, 75, 100];

function axes(measure: Measure, last: number): Pick<Plot, "x" | "y"> {
  const end = Math.max(STEPS, Math.ceil(last / 100) * 100);
  const every = end / 4;
  const x = {
    name: t`step`,
    log: false,
    min: 0,
    max: end,
    ticks: [0, every, 2 * every, 3 * every, end],
    text: (step: number) => String(Math.round(step)),
  };
  const loss = { name: t`nats a letter`, max: 4, ticks: [0, 1, 2, 3, 4], text: String };
  const accuracy = {
    name: t`% of the letters that can be known`,
    max: 100,
    ticks: ACCURACY_TICKS,
    text: String,
  };
  return { x, y: { ...(measure === "loss" ? loss : accuracy), log: false, min: 0 } };
}

/** More points than this are no finer line. */
const MOST_POINTS = 800;

/** Some of the points, evenly, and the last one. */
function thinned(points: readonly Point[]): readonly Point[] {
  const every = Math.ceil(points.length / MOST_POINTS);
  return points.filter((_, n) => n % every === 0 || n === points.length - 1);
}

export function curve(
  points: readonly Point[],
  looks: readonly Known[],
  measure: Measure,
  at: number | null,
): Plot {
  const { x, y } = axes(measure, points.at(-1)?.step ?? 0);
  const own: [number, number][] =
    measure === "loss"
      ? thinned(points).map(({ step, loss }) => [step, loss])
      : looks.map(({ step, accuracy }) => [step, 100 * accuracy]);
  const guessing: [number, number][] = [
    [0, GUESSING],
    [x.max, GUESSING],
  ];
  return {
    x,
    y,
    at,
    right: 72,
    series: [
      ...(measure === "loss"
        ? [{ name: t`guessing`, points: guessing, tone: "soft" as const, dash: true }]
        : []),
      { name: measure, label: t`model`, points: own, tone: "output" },
    ],
  };
}

export const curveTable = (points: readonly Point[], looks: readonly Known[]): Rows => {
  const known = new Map(looks.map(({ step, accuracy }) => [step, fixed(100 * accuracy, 1)]));
  return {
    columns: [t`step`, t`loss`, t`gradient norm`, t`learning rate`, t`accuracy %`],
    rows: points.map(({ step, loss, gradientNorm, learningRate }) => [
      String(step),
      fixed(loss, 4),
      fixed(gradientNorm, 4),
      decimal(learningRate.toExponential(3)),
      known.get(step) ?? "",
    ]),
  };
};
