// Nadaraya-Watson regression with a learned width.
import type { Rows } from "../../lib/file.js";
import { fixed } from "../../lib/format.js";
import { makeMatrix } from "../../lib/make_matrix.js";
import { valueAt } from "../../lib/matrix.js";
import { t } from "../../lib/messages.js";
import type { Plot } from "../../lib/plot.js";
import type { Fit, Look } from "../session.js";
import { PERCENT, type Picture, type TaskWords } from "../words.js";
import { COUNT, NOISE } from "./samples.js";
import { variants } from "./variants.js";

const LOSS_TICKS = [0, 0.2, 0.4, 0.6, 0.8];
const PLACES = [-1, -0.5, 0, 0.5, 1];

function pictures({ heads, fit }: Look): Picture[] {
  const labels = (fit?.x ?? []).map((x) => fixed(x, 2));
  const title = t`Weights of samples`;
  return heads.map((values) => {
    const hidden = (row: number, column: number) => row === column && fit?.seesItself === false;
    const given = { title, values, rowLabels: labels, columnLabels: labels, hidden };
    return { title, matrix: makeMatrix({ ...given, kind: "weight" }) };
  });
}

/** Samples, the curve that they are of, and what is made of them. */
export function fitPlot(fit: Fit): Plot {
  const line = (y: readonly number[]) =>
    y.map((value, i) => [fit.grid[i] as number, value] as const);
  const samples = fit.x.map((x, i) => [x, fit.y[i] as number] as const);
  return {
    x: { name: "x", log: false, min: -1, max: 1, ticks: PLACES, text: (x) => fixed(x, 1) },
    y: {
      name: "y",
      log: false,
      min: -2,
      max: 2,
      ticks: [-2, -1, 0, 1, 2],
      text: (y) => fixed(y, 0),
    },
    series: [
      { name: t`curve`, points: line(fit.truth), tone: "soft", dash: true },
      { name: t`samples`, label: "", points: samples, tone: "value", scatter: true },
      { name: t`fit`, points: line(fit.fitted), tone: "output" },
    ],
  };
}

export const fitTable = (fit: Fit): Rows => ({
  columns: ["x", t`curve`, t`fit`],
  rows: fit.grid.map((x, i) => [
    fixed(x, 4),
    fixed(fit.truth[i] as number, 4),
    fixed(fit.fitted[i] as number, 4),
  ]),
});

export const fitReadout = ({ width }: Fit): string =>
  width === null ? t`There is no width.` : t`Width ${fixed(width)}, in units of x.`;

/** How many samples a row of weights amounts to: 1 / sum of squares. */
const countsOf = ({ matrix }: Picture): number[] =>
  Array.from({ length: matrix.rowCount }, (_, row) => {
    let squares = 0;
    for (let column = 0; column < matrix.columnCount; column++) {
      squares += valueAt(matrix, row, column) ** 2;
    }
    return squares === 0 ? 0 : 1 / squares;
  });

export const regressionWords: TaskWords = {
  words: t`fitting a curve`,
  title: t`Watch a kernel find its width`,
  lead: t`Nadaraya-Watson regression is attention without learned queries and keys: a prediction is the mean of the samples, weighted by a kernel of their distance. Its one parameter, the width, is learned by gradient. Each sample is predicted from all others: if it saw itself, a width of 0 would have no error at all, and learn nothing of the curve.`,
  source: { words: "Nadaraya 1964", href: "https://doi.org/10.1137/1109020" },
  variants,
  choice: t`Kernel`,
  pace: 100,
  share: (percent) => t`${percent} % of the curve’s variance explained`,
  loss: (loss) => loss,
  measures: [
    {
      id: "loss",
      words: t`Loss`,
      title: t`Loss against steps`,
      axis: { name: t`mean squared error`, max: 0.8, ticks: LOSS_TICKS },
      reference: { name: t`noise alone`, value: NOISE ** 2 },
    },
    {
      id: "width",
      words: t`Width`,
      title: t`Width against steps`,
      axis: { name: t`width, in units of x`, max: 1, ticks: [0, 0.25, 0.5, 0.75, 1] },
    },
    {
      id: "accuracy",
      words: t`Accuracy`,
      title: t`Accuracy against steps`,
      axis: { name: t`% of the curve’s variance`, ...PERCENT },
    },
  ],
  caption: t`Error of ${COUNT} samples, each predicted from the others unless it sees itself, and of 200 new ones; noise of standard deviation ${fixed(NOISE, 2)}.`,
  headsTitle: t`The fit and its weights as they form`,
  headsCaption: t`Rows: places that are predicted, columns: samples that they are predicted from, both from left to right. The diagonal is hatched where no sample sees itself.`,
  pictures,
  favourite: () => 0,
  readout: (picture) => {
    const counts = countsOf(picture);
    const mean = counts.reduce((a, b) => a + b, 0) / counts.length;
    return t`A prediction is the mean of about ${fixed(mean, 1)} samples.`;
  },
  sentence: ({ matrix }, { row, column }) => {
    const [x, sample] = [matrix.rowLabels[row], matrix.columnLabels[column]];
    if (matrix.hidden(row, column)) return t`The sample at x = ${x} does not predict itself.`;
    return t`The prediction at x = ${x} takes ${fixed(valueAt(matrix, row, column))} of the sample at ${sample}.`;
  },
  table: ([picture], { fit }) => {
    const counts = picture ? countsOf(picture) : [];
    return {
      columns: ["x", "y", t`samples in its prediction`],
      rows: counts.map((count, i) => [
        fixed(fit?.x[i] ?? 0, 4),
        fixed(fit?.y[i] ?? 0, 4),
        fixed(count, 2),
      ]),
    };
  },
};
