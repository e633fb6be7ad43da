// Lines over two axes, linear or logarithmic, labelled at their ends.
import { decimal } from "./messages.js";
import type { Palette, Role } from "./palette.js";
import type { Scene, Shape } from "./scene.js";
import { roomFor, shortenedTo, textWidth } from "./text_width.js";

export type Tone = Role | "soft" | "ink" | "faint";

/** What stands at the points of a line: tells lines of one colour apart. */
export const MARKS = [
  "dot",
  "ring",
  "square",
  "frame",
  "diamond",
  "cross",
  "triangle",
  "plus",
] as const;
export type Mark = (typeof MARKS)[number];

export interface Series {
  name: string;
  points: readonly (readonly [number, number])[];
  tone: Tone;
  dash?: boolean;
  dots?: boolean;
  /** Instead of dots; also before the label. */
  mark?: Mark;
  /** Dots without a line between them. */
  scatter?: boolean;
  /** Of the dots; absent: 3. */
  radius?: number;
  /** Stands at the end of the line; absent: the name. */
  label?: string;
}

export interface Axis {
  name: string;
  log: boolean;
  min: number;
  max: number;
  ticks: readonly number[];
  text: (value: number) => string;
}

export interface Plot {
  x: Axis;
  y: Axis;
  series: readonly Series[];
  /** A place on the x axis that stands out. */
  at?: number | null;
  /** Labels that lines may still get, or those of a plot below: there is room for these too. */
  labels?: readonly string[];
  /** A thin line from the end of each line to its label. */
  leaders?: boolean;
  /** Labels of more letters go on below. */
  letters?: number;
}

const MARGIN = { top: 28, bottom: 40 };
/** Plots one below the other begin at the same place, unless one of them has longer numbers. */
const LEAST = { left: 56, right: 16 };
/** Between names of axes and the edge of the plot. */
const EDGE = 4;
/** Between the axis and its numbers, and between the end of a line and its label. */
const GAP = 10;
const SIZE = 12;
const LABEL_PITCH = 16;
/** Of a label of several lines. */
const LINE_PITCH = 14;
/** More between a line and its label, where a leader joins them. */
const LEADER = 18;
/** Of the mark before a label. */
const MARK_ROOM = 12;

type Scale = (value: number) => number;

function scaleOf(axis: Axis, from: number, to: number): Scale {
  const place = (value: number) => (axis.log ? Math.log(value) : value);
  const [low, high] = [place(axis.min), place(axis.max)];
  return (value) => from + ((place(value) - low) / (high - low || 1)) * (to - from);
}

const labelOf = ({ name, label }: Series): string => label ?? name;

/** What a label is broken between: words, and the parts of a name_of_parts. */
const partsOf = (label: string): string[] => label.split(/(?<= )|(?<=_)/);

/** A label in lines that are broken between its parts. */
function linesOf(label: string, letters = Number.POSITIVE_INFINITY): string[] {
  const lines: string[] = [];
  for (const part of partsOf(label)) {
    const longer = `${lines.at(-1)}${part}`;
    if (lines.length > 0 && longer.trimEnd().length <= letters) lines[lines.length - 1] = longer;
    else lines.push(part);
  }
  return lines.map((line) => line.trimEnd());
}

const namesOf = ({ series, labels = [] }: Plot): string[] =>
  [...series.map(labelOf), ...labels].filter((label) => label !== "");

const gapOf = ({ leaders }: Plot): number => GAP + (leaders ? LEADER : 0);

/** As wide as the numbers at the left and the labels at the right are. */
function margins(plot: Plot): { left: number; right: number } {
  const { x, y, series, letters } = plot;
  const left = GAP + roomFor(y.ticks.map(y.text), SIZE);
  const last = textWidth(x.text(x.ticks.at(-1) ?? x.max), SIZE) / 2;
  const named = namesOf(plot);
  const marked = series.some(({ mark }) => mark !== undefined) ? MARK_ROOM : 0;
  const lines = named.flatMap((label) => linesOf(label, letters));
  const right = named.length > 0 ? gapOf(plot) + marked + roomFor(lines, SIZE) : 0;
  return {
    left: Math.max(LEAST.left, left),
    right: Math.max(LEAST.right, right, Math.ceil(last)),
  };
}

/** Labels do not take more of the width, so that the lines keep theirs. */
const MOST_RIGHT = 0.35;

/** On a narrow plot labels go on below, in as few lines as fit; where no lines do, leaders go. */
function fitted(plot: Plot, width: number): Plot {
  const fits = (fit: Plot) => margins(fit).right <= MOST_RIGHT * width;
  if (fits(plot)) return plot;
  const names = namesOf(plot);
  const longest = Math.max(...names.map((name) => name.length));
  const least = Math.max(...names.flatMap(partsOf).map((part) => part.trimEnd().length));
  let letters = Math.min(plot.letters ?? longest, longest);
  while (letters > least && !fits({ ...plot, letters })) letters--;
  const folded = { ...plot, letters };
  return fits(folded) ? folded : { ...folded, leaders: false };
}

export interface PlotScales {
  px: Scale;
  py: Scale;
  /** The value on the x axis under a position in CSS pixels. */
  valueAt: (x: number) => number;
}

export function plotScales(given: Plot, width: number, height: number): PlotScales {
  const plot = fitted(given, width);
  const margin = margins(plot);
  const [left, right] = [margin.left, width - margin.right];
  const px = scaleOf(plot.x, left, right);
  const py = scaleOf(plot.y, height - MARGIN.bottom, MARGIN.top);
  const valueAt = (x: number) => {
    const part = Math.min(1, Math.max(0, (x - left) / (right - left)));
    const { log, min, max } = plot.x;
    return log ? min * (max / min) ** part : min + part * (max - min);
  };
  return { px, py, valueAt };
}

export const toneColour = (palette: Palette, tone: Tone): string =>
  tone === "soft" || tone === "ink"
    ? palette[tone]
    : tone === "faint"
      ? palette.hatch
      : palette.roleText[tone];

/**
 * On a narrow plot some numbers would touch their neighbours: every second, third, ... is left. The end of the
 * axis keeps its number, which says how far it goes.
 */
function apartOf({ ticks, text, max }: Axis, px: Scale): readonly number[] {
  const half = (tick: number) => textWidth(text(tick), SIZE) / 2;
  const clear = (a: number, b: number) => px(b) - half(b) - (px(a) + half(a)) >= SIZE / 2;
  const touch = (tick: number, at: number, all: readonly number[]) =>
    at > 0 && !clear(all[at - 1] as number, tick);
  let kept = ticks;
  for (let every = 2; kept.some(touch); every++) {
    kept = ticks.filter((_, at) => at % every === 0);
  }
  const last = ticks.at(-1);
  if (last !== max || kept.at(-1) === max) return kept;
  return [...kept.filter((tick) => clear(tick, max)), max];
}

function axisShapes(plot: Plot, palette: Palette, scales: PlotScales, height: number): Shape[] {
  const { px, py } = scales;
  const text = { size: SIZE, fill: palette.soft };
  const shapes: Shape[] = [];
  for (const y of plot.y.ticks) {
    const points = [[px(plot.x.min), py(y)] as const, [px(plot.x.max), py(y)] as const];
    shapes.push({ kind: "path", points, stroke: palette.faint, line: 1 });
    const words = plot.y.text(y);
    shapes.push({
      kind: "text",
      x: px(plot.x.min) - GAP,
      y: py(y),
      text: words,
      anchor: "end",
      ...text,
    });
  }
  const bottom = height - MARGIN.bottom + 14;
  for (const tick of apartOf(plot.x, px)) {
    const [x, words] = [px(tick), plot.x.text(tick)];
    shapes.push({ kind: "text", x, y: bottom, text: words, anchor: "middle", ...text });
  }
  return shapes;
}

/** What the axes say, whole: the one below ends with its axis, or further right where it is longer. */
function nameShapes(
  { x, y }: Plot,
  palette: Palette,
  { px }: PlotScales,
  width: number,
  height: number,
): Shape[] {
  const [across, up] = [x.name, y.name].map((name) => shortenedTo(name, width - 2 * EDGE, SIZE));
  const end = Math.max(px(x.max), EDGE + textWidth(across ?? "", SIZE));
  const text = { kind: "text", size: SIZE, fill: palette.soft } as const;
  return [
    { ...text, x: EDGE, y: 10, text: up ?? "", anchor: "start" },
    { ...text, x: end, y: height - MARGIN.bottom + 32, text: across ?? "", anchor: "end" },
  ];
}

const inside = (axis: Axis, value: number): boolean =>
  Number.isFinite(value) && (!axis.log || value > 0);

function markShapes(mark: Mark, x: number, y: number, colour: string, palette: Palette): Shape[] {
  const { background } = palette;
  if (mark === "dot") return [{ kind: "dot", x, y, radius: 3, fill: colour, stroke: background }];
  if (mark === "ring") return [{ kind: "dot", x, y, radius: 3, fill: background, stroke: colour }];
  const path = (...points: (readonly [number, number])[]): Shape => ({
    kind: "path",
    points: points.map(([right, down]) => [x + right, y + down] as const),
    stroke: colour,
    line: 1.75,
  });
  if (mark === "diamond") return [path([0, -4], [4, 0], [0, 4], [-4, 0], [0, -4])];
  if (mark === "triangle") return [path([0, -4], [4, 3], [-4, 3], [0, -4])];
  if (mark === "cross") return [path([-3.5, -3.5], [3.5, 3.5]), path([-3.5, 3.5], [3.5, -3.5])];
  if (mark === "plus") return [path([0, -4.5], [0, 4.5]), path([-4.5, 0], [4.5, 0])];
  const box = { x: x - 3, y: y - 3, width: 6, height: 6 };
  if (mark === "square") return [{ kind: "rect", ...box, fill: colour }];
  return [
    { kind: "rect", ...box, fill: background },
    { kind: "frame", ...box, stroke: colour, line: 1.5 },
  ];
}

function lineShapes(plot: Plot, palette: Palette, { px, py }: PlotScales): Shape[] {
  return plot.series.flatMap((series) => {
    const stroke = toneColour(palette, series.tone);
    const clamp = (y: number) => Math.min(plot.y.max, Math.max(plot.y.min, y));
    const points = series.points
      .filter(([x, y]) => inside(plot.x, x) && inside(plot.y, y))
      .map(([x, y]) => [px(x), py(clamp(y))] as const);
    const line = series.dash ? 1.5 : 2;
    const path: Shape = { kind: "path", points, stroke, line, ...(series.dash && { dash: true }) };
    const shapes: Shape[] = series.scatter ? [] : [path];
    const alone = points.length === 1 && !series.dots && !series.scatter ? points[0] : undefined;
    if (alone)
      shapes.push({ kind: "dot", x: alone[0], y: alone[1], radius: 2, fill: stroke, stroke });
    if (series.dots || series.scatter) {
      for (const [x, y] of points) {
        if (series.mark) {
          shapes.push(...markShapes(series.mark, x, y, stroke, palette));
          continue;
        }
        shapes.push({
          kind: "dot",
          x,
          y,
          radius: series.radius ?? 3,
          fill: stroke,
          stroke: palette.background,
        });
      }
    }
    return shapes;
  });
}

interface EndLabel {
  lines: readonly string[];
  /** Of its middle, and of the end of its line. */
  y: number;
  end: readonly [number, number];
  height: number;
  fill: string;
  mark: Mark | undefined;
}

/** From the first to the last, then back from the bottom: none touches another. */
function moveApart(labels: readonly EndLabel[], bottom: number): void {
  const apart = (a: EndLabel, b: EndLabel) => (a.height + b.height) / 2;
  labels.forEach((label, index) => {
    const before = labels[index - 1];
    if (before) label.y = Math.max(label.y, before.y + apart(before, label));
  });
  let below: EndLabel | null = null;
  for (const label of labels.toReversed()) {
    const room = below ? below.y - apart(below, label) : bottom - (label.height - LABEL_PITCH) / 2;
    label.y = Math.min(label.y, room);
    below = label;
  }
}

/** Names at the ends of the lines, moved apart where they would touch. */
function endLabels(plot: Plot, palette: Palette, { px, py }: PlotScales): Shape[] {
  const x = px(plot.x.max) + gapOf(plot);
  const labels = plot.series
    .filter((each) => labelOf(each) !== "")
    .flatMap((each): EndLabel[] => {
      const { points, tone, mark } = each;
      const last = points.findLast(([, y]) => inside(plot.y, y));
      // A line that is not drawn has no name either.
      if (!last) return [];
      const [at, end] = last;
      const y = py(Math.min(plot.y.max, Math.max(plot.y.min, end)));
      const lines = linesOf(labelOf(each), plot.letters);
      const height = LABEL_PITCH + LINE_PITCH * (lines.length - 1);
      return [{ lines, y, end: [px(at), y], height, fill: toneColour(palette, tone), mark }];
    })
    .sort((a, b) => a.y - b.y);
  moveApart(labels, py(plot.y.min));
  const indent = labels.some(({ mark }) => mark !== undefined) ? MARK_ROOM : 0;
  return labels.flatMap(({ lines, y, end, fill, mark }): Shape[] => {
    const text = { x: x + indent, size: SIZE, fill, anchor: "start" as const };
    const first = y - (LINE_PITCH * (lines.length - 1)) / 2;
    const leader = [[end[0] + 6, end[1]] as const, [x - 3, y] as const];
    return [
      ...(plot.leaders
        ? [{ kind: "path" as const, points: leader, stroke: palette.hatch, line: 1 }]
        : []),
      ...(mark ? markShapes(mark, x + 3, y, fill, palette) : []),
      ...lines.map(
        (line, at): Shape => ({ kind: "text", y: first + at * LINE_PITCH, text: line, ...text }),
      ),
    ];
  });
}

export function plotScene(given: Plot, palette: Palette, width: number, height: number): Scene {
  const plot = fitted(given, width);
  const scales = plotScales(plot, width, height);
  const shapes = [
    ...axisShapes(plot, palette, scales, height),
    ...nameShapes(plot, palette, scales, width, height),
  ];
  if (plot.at !== null && plot.at !== undefined) {
    const x = scales.px(plot.at);
    const points = [[x, MARGIN.top] as const, [x, height - MARGIN.bottom] as const];
    shapes.push({ kind: "path", points, stroke: palette.soft, line: 1 });
  }
  shapes.push(...lineShapes(plot, palette, scales), ...endLabels(plot, palette, scales));
  return { width, height, background: palette.background, hatch: palette.hatch, shapes };
}

/** How far from a point, in CSS pixels, one still points at it. */
const REACH = 24;

/** The name of the series whose point is nearest to a position, if one is near. */
export function seriesAt(
  plot: Plot,
  width: number,
  height: number,
  at: { x: number; y: number },
): string | null {
  const { px, py } = plotScales(plot, width, height);
  let [best, name]: [number, string | null] = [REACH, null];
  for (const series of plot.series.filter(({ dots }) => dots)) {
    for (const [x, y] of series.points) {
      const distance = Math.hypot(px(x) - at.x, py(y) - at.y);
      if (distance < best) [best, name] = [distance, series.name];
    }
  }
  return name;
}

/** Powers of `base` from the one at or below `min` to the one at or above `max`. */
export function powers(min: number, max: number, base = 10, every = 1): number[] {
  const first = Math.floor(Math.log(min) / Math.log(base) + 1e-9);
  const last = Math.ceil(Math.log(max) / Math.log(base) - 1e-9);
  const found: number[] = [];
  for (let exponent = first; exponent <= last; exponent += every) found.push(base ** exponent);
  return found;
}

const UNITS = ["", "K", "M", "G", "T"] as const;

/** 4096 as "4096", 1.5e6 as "1.5M": axis numbers that stay short. */
export function shortCount(value: number): string {
  const step = Math.max(0, Math.min(UNITS.length - 1, Math.floor(Math.log10(value) / 3 + 1e-9)));
  const digits = value < 10_000 ? value : Number((value / 1000 ** step).toPrecision(3));
  return `${decimal(digits)}${value < 10_000 ? "" : UNITS[step]}`;
}
