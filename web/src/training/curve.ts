// What is measured, against steps, as a plot and as a table.
import type { Rows } from "../lib/file.js";
import { fixed, grouped } from "../lib/format.js";
import { decimal, t } from "../lib/messages.js";
import type { Plot, Series } from "../lib/plot.js";
import type { Look } from "./session.js";
import type { Point } from "./training.svelte.js";
import type { Measure } from "./words.js";

type Pairs = Series["points"];
/** What is kept of each look. */
export type Known = Pick<Look, "step" | "accuracy" | "heldOut">;

/** More points than this are no finer line. */
const MOST_POINTS = 800;

/** Some of the points, evenly, and the last one. */
function thinned(points: readonly Point[]): readonly Point[] {
  const every = Math.ceil(points.length / MOST_POINTS);
  return points.filter((_, n) => n % every === 0 || n === points.length - 1);
}

const heldOut = (looks: readonly Known[]): Pairs =>
  looks.flatMap((look) => (look.heldOut === undefined ? [] : [[look.step, look.heldOut] as const]));

/** The model's own line, and another one of examples that it does not train on. */
function linesOf(measure: Measure, points: readonly Point[], looks: readonly Known[]): Series[] {
  const own = (pairs: Pairs, label = t`model`): Series => ({
    name: measure.id,
    label,
    points: pairs,
    tone: "output",
  });
  if (measure.id === "accuracy") {
    return [own(looks.map(({ step, accuracy }) => [step, 100 * accuracy]))];
  }
  const some = thinned(points);
  if (measure.id === "width") {
    return [own(some.flatMap(({ step, width }) => (width === undefined ? [] : [[step, width]])))];
  }
  const loss = some.map(({ step, loss }) => [step, loss] as const);
  const held = heldOut(looks);
  if (held.length === 0) return [own(loss)];
  return [own(loss, t`trained`), { name: t`new`, points: held, tone: "ink" }];
}

export function curve(
  measure: Measure,
  steps: number,
  points: readonly Point[],
  looks: readonly Known[],
  at: number | null,
): Plot {
  const end = Math.max(steps, Math.ceil((points.at(-1)?.step ?? 0) / 100) * 100);
  const { reference } = measure;
  const compared: Series[] = reference
    ? [
        {
          name: reference.name,
          points: [
            [0, reference.value],
            [end, reference.value],
          ],
          tone: "soft",
          dash: true,
        },
      ]
    : [];
  // What is known before the first step is one point, not a curve.
  const drawn = linesOf(measure, points, points.length === 0 ? [] : looks);
  return {
    x: {
      name: t`step`,
      log: false,
      min: 0,
      max: end,
      ticks: [0, end / 4, end / 2, (3 * end) / 4, end],
      text: (step) => grouped(Math.round(step)),
    },
    y: { ...measure.axis, log: false, min: 0, text: decimal },
    at,
    series: [...compared, ...drawn],
  };
}

export function curveTable(points: readonly Point[], looks: readonly Known[]): Rows {
  const known = new Map(looks.map((look) => [look.step, look]));
  const widths = points.some(({ width }) => width !== undefined);
  const others = looks.some((look) => look.heldOut !== undefined);
  const shown = (value: number | undefined, digits = 4) =>
    value === undefined ? "" : fixed(value, digits);
  const rows = points.map(({ step, loss, gradientNorm, learningRate, width }) => {
    const look = known.get(step);
    return [
      String(step),
      fixed(loss, 4),
      fixed(gradientNorm, 4),
      Number(learningRate.toPrecision(4)),
      shown(look && 100 * look.accuracy, 1),
      ...(others ? [shown(look?.heldOut)] : []),
      ...(widths ? [shown(width)] : []),
    ];
  });
  const columns = [t`step`, t`loss`, t`gradient norm`, t`learning rate`, t`accuracy %`];
  if (others) columns.push(t`loss of new samples`);
  if (widths) columns.push(t`width`);
  return { columns, rows };
}
