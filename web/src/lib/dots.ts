// Many names, a dot or two for each over one logarithmic axis, in as many columns as fit.
import type { Palette } from "./palette.js";
import { powers } from "./plot.js";
import type { Scene, Shape } from "./scene.js";
import { roomFor, textWidth } from "./text_width.js";

export interface DotRow {
  name: string;
  /** The filled dot, and the ring beside it; absent: not measured. */
  value?: number | undefined;
  other?: number | undefined;
}

export interface Dots {
  /** What a place on the axis means. */
  name: string;
  /** From top to bottom. */
  rows: readonly DotRow[];
  text: (value: number) => string;
  /** A place that all are compared with. */
  line?: number | undefined;
  /** The row that stands out. */
  chosen: string;
}

const ROW = 18;
const TOP = 44;
/** Between a name and the axis. */
const GAP = 12;
const BETWEEN = 40;
const SIZE = 12;
const RADIUS = 4;
/** A column narrower than this has no room for its dots. */
const LEAST = 420;

const columnsIn = (width: number): number => (width >= 2 * LEAST + BETWEEN ? 2 : 1);
const rowsIn = ({ rows }: Dots, width: number): number => Math.ceil(rows.length / columnsIn(width));

export const dotsHeight = (dots: Dots, width: number): number =>
  TOP + rowsIn(dots, width) * ROW + 8;

const valuesOf = ({ value, other }: DotRow): number[] =>
  [value, other].filter((one) => one !== undefined);

interface Place {
  /** Where names end. */
  names: number;
  px: (value: number) => number;
  ticks: number[];
}

/** Both columns have the same axis, so that they can be compared. */
function placesOf({ rows, line, text }: Dots, width: number): Place[] {
  const all = [...rows.flatMap(valuesOf), ...(line === undefined ? [] : [line])];
  const ticks = powers(Math.min(...all), Math.max(...all));
  const [low, high] = [Math.log(ticks[0] as number), Math.log(ticks.at(-1) as number)];
  const count = columnsIn(width);
  const column = (width - (count - 1) * BETWEEN) / count;
  // The chosen name is bold, and may be any.
  const room = roomFor(
    rows.map(({ name }) => name),
    SIZE,
    true,
  );
  const beyond = Math.ceil(textWidth(text(ticks.at(-1) as number), SIZE) / 2);
  return Array.from({ length: count }, (_, at) => {
    const names = at * (column + BETWEEN) + room;
    const [from, to] = [names + GAP, names - room + column - beyond];
    const px = (value: number) => from + ((Math.log(value) - low) / (high - low)) * (to - from);
    return { names, px, ticks };
  });
}

function axisShapes(dots: Dots, { px, ticks }: Place, count: number, palette: Palette): Shape[] {
  const text = { kind: "text", size: SIZE, fill: palette.soft, anchor: "middle" } as const;
  const bottom = TOP + count * ROW;
  const vertical = (value: number, stroke: string, dash: boolean): Shape => ({
    kind: "path",
    points: [
      [px(value), TOP - 6],
      [px(value), bottom],
    ],
    stroke,
    line: 1,
    dash,
  });
  const lines = ticks.flatMap((tick): Shape[] => [
    vertical(tick, palette.faint, false),
    { ...text, x: px(tick), y: TOP - 16, text: dots.text(tick) },
  ]);
  return dots.line ? [...lines, vertical(dots.line, palette.soft, true)] : lines;
}

function rowShapes(
  row: DotRow,
  { names, px }: Place,
  y: number,
  isChosen: boolean,
  palette: Palette,
): Shape[] {
  const fill = isChosen ? palette.roleText.output : palette.ink;
  const name: Shape = {
    kind: "text",
    x: names,
    y,
    text: row.name,
    size: SIZE,
    anchor: "end",
    fill: isChosen ? fill : palette.soft,
    bold: isChosen,
  };
  const shapes: Shape[] = [name];
  if (row.value !== undefined && row.other !== undefined) {
    const points = [[px(row.value), y] as const, [px(row.other), y] as const];
    shapes.push({ kind: "path", points, stroke: palette.hatch, line: 1 });
  }
  const dot = (value: number, inside: string): Shape => ({
    kind: "dot",
    x: px(value),
    y,
    radius: RADIUS,
    fill: inside,
    stroke: fill,
  });
  if (row.other !== undefined) shapes.push(dot(row.other, palette.background));
  if (row.value !== undefined) shapes.push(dot(row.value, fill));
  return shapes;
}

export function dotsScene(dots: Dots, palette: Palette, width: number): Scene {
  const count = rowsIn(dots, width);
  const title = { kind: "text", size: SIZE, fill: palette.soft, x: 0, y: 10 } as const;
  const shapes: Shape[] = [{ ...title, text: dots.name, anchor: "start" }];
  placesOf(dots, width).forEach((place, column) => {
    const own = dots.rows.slice(column * count, (column + 1) * count);
    shapes.push(...axisShapes(dots, place, own.length, palette));
    own.forEach((row, at) => {
      const y = TOP + at * ROW + ROW / 2;
      shapes.push(...rowShapes(row, place, y, row.name === dots.chosen, palette));
    });
  });
  const { background, hatch } = palette;
  return { width, height: dotsHeight(dots, width), background, hatch, shapes };
}

/** The name of the row at a position in CSS pixels. */
export function rowAt(dots: Dots, width: number, at: { x: number; y: number }): string | null {
  const count = rowsIn(dots, width);
  const row = Math.floor((at.y - TOP) / ROW);
  if (row < 0 || row >= count) return null;
  const column = Math.min(columnsIn(width) - 1, Math.floor((at.x / width) * columnsIn(width)));
  return dots.rows[column * count + row]?.name ?? null;
}
