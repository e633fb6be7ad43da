// One row of weights as bars; outlines show another row beside it, hatching what no key receives.
import { fixed } from "./format.js";
import type { Palette } from "./palette.js";
import type { Scene, Shape } from "./scene.js";

export interface WeightRow {
  names: readonly string[];
  weights: ArrayLike<number>;
  /** The outlines. */
  plain?: ArrayLike<number> | undefined;
  /** What goes to no key, behind the bars. */
  rest?: { name: string; weight: number } | undefined;
  /** The weight of a bar of full height; absent: 1. */
  limit?: number | undefined;
}

const SIZE = 12;
const LINE = 20;
const WIDEST = 640;
/** Of a bar; its column may be wider. */
const BAR = 48;
const NARROW = 480;

/** Left edges and widths of the columns, as a row of boxes with gaps would have them. */
export function columnsOf(width: number, count: number, hasRest: boolean) {
  const gap = width < NARROW ? 3 : 8;
  const room = Math.min(WIDEST, width);
  const apart = hasRest ? gap + (width < NARROW ? 4 : 16) : 0;
  const side = (room - gap * (count - 1) - apart) / (count + (hasRest ? 1.4 : 0));
  const columns = Array.from({ length: count }, (_, at) => ({ x: at * (side + gap), width: side }));
  if (hasRest) columns.push({ x: room - 1.4 * side, width: 1.4 * side });
  return columns;
}

export function weightBarsScene(
  { names, weights, plain, rest, limit = 1 }: WeightRow,
  palette: Palette,
  width: number,
  height: number,
): Scene {
  const bottom = height - LINE;
  const tall = (weight: number) => (Math.max(0, Math.min(weight, limit)) / limit) * (bottom - LINE);
  const shapes: Shape[] = [];
  const words = [...names.map((name) => ({ name, fill: palette.roleText.key }))];
  if (rest) words.push({ name: rest.name, fill: palette.ink });
  columnsOf(width, names.length, rest !== undefined).forEach((column, at) => {
    const isRest = at === names.length;
    const weight = isRest ? (rest?.weight ?? 0) : (weights[at] ?? 0);
    const middle = column.x + column.width / 2;
    const bar = { x: middle - Math.min(BAR, column.width) / 2, width: Math.min(BAR, column.width) };
    const box = (value: number) => ({ ...bar, y: bottom - tall(value), height: tall(value) });
    const other = plain?.[at];
    if (isRest) shapes.push({ kind: "hatch", ...box(weight) });
    else
      shapes.push({ kind: "rect", fill: palette.ramps.key.at(-1) ?? palette.ink, ...box(weight) });
    if (other !== undefined && !isRest)
      shapes.push({ kind: "frame", stroke: palette.soft, line: 1, ...box(other) });
    const line = [[bar.x, bottom] as const, [bar.x + bar.width, bottom] as const];
    shapes.push({ kind: "path", points: line, stroke: palette.soft, line: 1 });
    const text = { kind: "text", x: middle, size: SIZE, anchor: "middle" } as const;
    const value = weight === 0 ? "0" : fixed(weight, 2);
    shapes.push({
      ...text,
      y: LINE / 2 - 2,
      text: value,
      fill: weight === 0 ? palette.soft : palette.ink,
    });
    const { name = "", fill = palette.ink } = words[at] ?? {};
    shapes.push({ ...text, y: bottom + LINE / 2 + 2, text: name, fill, bold: !isRest });
  });
  return { width, height, background: palette.background, hatch: palette.hatch, shapes };
}
