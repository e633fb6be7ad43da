// The regression plot: data, truth and estimate, labelled on the marks.
import { t } from "./messages.js";
import type { Palette } from "./palette.js";
import type { Scene, Shape } from "./scene.js";
import { roomFor } from "./text_width.js";
import { DOMAIN, POINTS, type Regression, SAMPLE, truth } from "./worked.js";

const MARGIN = { top: 12, bottom: 32 };
const Y_RANGE = [-1, 6] as const;
const SIZE = 12;
/** Between the axis and its numbers, and between a line and its label. */
const GAP = 10;
const TRUTH = t`truth`;
const ESTIMATE = t`estimate`;

function margins() {
  return {
    left: 2 * GAP + roomFor(Y_RANGE.map(String), SIZE),
    right: GAP + roomFor([TRUTH, ESTIMATE], SIZE, true),
  };
}

/** The query nearest to a horizontal position in CSS pixels, or null outside the plot. */
export function queryAt(x: number, width: number): number | null {
  const { left, right } = margins();
  const place = (x - left) / (width - left - right);
  if (place < -0.02 || place > 1.02) return null;
  const last = SAMPLE.at.length - 1;
  return Math.max(0, Math.min(last, Math.round(place * last)));
}

function axes(palette: Palette, height: number, px: Scale, py: Scale): Shape[] {
  const shapes: Shape[] = [];
  for (let x = 0; x <= DOMAIN; x++) {
    const text = { text: String(x), size: SIZE, fill: palette.soft };
    shapes.push({ kind: "text", x: px(x), y: height - 18, anchor: "middle", ...text });
  }
  for (let y = Y_RANGE[0] + 1; y <= Y_RANGE[1]; y += 2) {
    const points = [[px(0), py(y)] as const, [px(DOMAIN), py(y)] as const];
    shapes.push({ kind: "path", points, stroke: palette.faint, line: 1 });
    const text = { text: String(y), size: SIZE, fill: palette.soft };
    shapes.push({ kind: "text", x: px(0) - GAP, y: py(y), anchor: "end", ...text });
  }
  const name = { size: SIZE, fill: palette.soft, anchor: "start" as const };
  shapes.push({ kind: "text", x: px(DOMAIN) + GAP, y: height - 18, text: "x", ...name });
  // Beside the end of its axis, where no number stands.
  shapes.push({ kind: "text", x: px(0) + 4, y: py(Y_RANGE[1]), text: "y", ...name });
  return shapes;
}

type Scale = (value: number) => number;

/** Runs of neighbouring queries that see at least one point. */
function runs(empty: readonly boolean[]): [number, number][] {
  const found: [number, number][] = [];
  let start = -1;
  for (let i = 0; i <= empty.length; i++) {
    const seen = i < empty.length && !empty[i];
    if (seen && start < 0) start = i;
    if (!seen && start >= 0) {
      found.push([start, i]);
      start = -1;
    }
  }
  return found;
}

function curves(palette: Palette, result: Regression, px: Scale, py: Scale): Shape[] {
  const at = Array.from(SAMPLE.at);
  const shapes: Shape[] = [
    {
      kind: "path",
      points: at.map((x) => [px(x), py(truth(x))] as const),
      stroke: palette.soft,
      line: 1.5,
      dash: true,
    },
  ];
  const stroke = palette.ramps.output.at(-1) as string;
  for (const [from, to] of runs(result.empty)) {
    const points = at
      .slice(from, to)
      .map((x, i) => [px(x), py(result.estimate[from + i] as number)] as const);
    const [x, y] = points[0] as readonly [number, number];
    const alone = points.length === 1;
    shapes.push(
      alone
        ? { kind: "dot", x, y, radius: 2, fill: stroke, stroke }
        : { kind: "path", points, stroke, line: 2.5 },
    );
  }
  return shapes;
}

function endLabels(palette: Palette, result: Regression, px: Scale, py: Scale): Shape[] {
  const truthY = py(truth(DOMAIN));
  const label = { kind: "text", x: px(DOMAIN) + GAP, size: SIZE, anchor: "start" } as const;
  const named: Shape = { ...label, y: truthY, text: TRUTH, fill: palette.soft };
  const last = result.empty.lastIndexOf(false);
  if (last < 0) return [named];
  let estimateY = py(result.estimate[last] as number);
  if (Math.abs(estimateY - truthY) < 15) estimateY = truthY + (estimateY < truthY ? -15 : 15);
  return [
    named,
    { ...label, y: estimateY, text: ESTIMATE, fill: palette.roleText.output, bold: true },
  ];
}

/** The plot; with a query in focus, the points grow with their weight. */
export function plotScene(
  result: Regression,
  palette: Palette,
  width: number,
  height: number,
  query: number | null,
): Scene {
  const { left, right } = margins();
  const px: Scale = (x) => left + (x / DOMAIN) * (width - left - right);
  const py: Scale = (y) =>
    MARGIN.top +
    ((Y_RANGE[1] - y) / (Y_RANGE[1] - Y_RANGE[0])) * (height - MARGIN.top - MARGIN.bottom);
  const shapes = axes(palette, height, px, py);
  if (query !== null) {
    const x = px(SAMPLE.at[query] as number);
    const points = [[x, MARGIN.top] as const, [x, height - MARGIN.bottom] as const];
    shapes.push({ kind: "path", points, stroke: palette.roleText.query, line: 1 });
  }
  const fill = palette.ramps.value.at(-1) as string;
  for (let j = 0; j < POINTS; j++) {
    const weight = query === null ? null : (result.weights[query * POINTS + j] as number);
    shapes.push({
      kind: "dot",
      x: px(SAMPLE.x[j] as number),
      y: py(SAMPLE.y[j] as number),
      radius: weight === null ? 3.5 : 2 + 14 * Math.sqrt(weight),
      fill: weight === 0 ? palette.background : fill,
      stroke: weight === 0 ? palette.hatch : palette.background,
    });
  }
  shapes.push(...curves(palette, result, px, py), ...endLabels(palette, result, px, py));
  return { width, height, background: palette.background, hatch: palette.hatch, shapes };
}
