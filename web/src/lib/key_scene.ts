// The colour key: which number is which colour, and what hatching means.
import { fixed } from "./format.js";
import { rampPosition, type Scale } from "./matrix.js";
import { decimal, t } from "./messages.js";
import type { Palette } from "./palette.js";
import { rampColour } from "./ramp.js";
import type { Shape } from "./scene.js";

export const KEY_HEIGHT = 34;
const BAR_HEIGHT = 10;
const STEPS = 80;
const SIZE = 11;

function ticks(matrix: Scale): number[] {
  if (matrix.kind === "weight") return [0, 0.05, 0.2, 0.5, 1].map((t) => t * matrix.limit);
  return [-matrix.limit, 0, matrix.limit];
}

/** The numbers under the bar; one that would touch its neighbour is left out, the last never. */
function tickShapes(matrix: Scale, palette: Palette, width: number): Shape[] {
  const shapes: Shape[] = [];
  const all = ticks(matrix);
  let end = -Infinity;
  all.forEach((value, index) => {
    const text =
      matrix.kind === "weight" ? decimal(String(Number(value.toPrecision(2)))) : fixed(value, 1);
    const x = rampPosition(matrix, value) * width;
    const wide = text.length * SIZE * 0.6;
    const anchor = index === 0 ? "start" : index === all.length - 1 ? "end" : "middle";
    const begin = anchor === "start" ? x : anchor === "end" ? x - wide : x - wide / 2;
    if (anchor === "middle" && begin < end + 6) return;
    end = begin + wide;
    shapes.push({
      kind: "text",
      x,
      y: BAR_HEIGHT + 14,
      text,
      size: SIZE,
      fill: palette.soft,
      anchor,
    });
  });
  return shapes;
}

function barShapes(matrix: Scale, palette: Palette, width: number): Shape[] {
  const ramp = palette.ramps[matrix.ramp];
  const step = width / STEPS;
  const shapes: Shape[] = Array.from({ length: STEPS }, (_, index) => ({
    kind: "rect",
    x: index * step,
    y: 4,
    width: step + 0.5,
    height: BAR_HEIGHT,
    fill: rampColour(ramp, (index + 0.5) / STEPS),
  }));
  shapes.push({
    kind: "frame",
    x: 0.5,
    y: 3.5,
    width: width,
    height: BAR_HEIGHT + 1,
    line: 1,
    stroke: palette.faint,
  });
  shapes.push(...tickShapes(matrix, palette, width));
  return shapes;
}

/** The key in a box of `width` x KEY_HEIGHT with its corner at (0, 0). */
export function keyShapes(matrix: Scale, palette: Palette, width: number): Shape[] {
  const barWidth = matrix.kind === "mask" ? 0 : Math.min(220, width - 110);
  const shapes = matrix.kind === "mask" ? [] : barShapes(matrix, palette, barWidth);
  if (matrix.kind === "vector") return shapes;
  let x = barWidth ? barWidth + 24 : 0;
  const swatch = (fill: string | null, text: string) => {
    const box = { x, y: 4, width: BAR_HEIGHT + 4, height: BAR_HEIGHT };
    shapes.push(fill ? { kind: "rect", fill, ...box } : { kind: "hatch", ...box });
    shapes.push({ kind: "frame", stroke: palette.faint, line: 1, ...box });
    shapes.push({
      kind: "text",
      x: x + BAR_HEIGHT + 10,
      y: 9.5,
      text,
      size: SIZE,
      fill: palette.soft,
      anchor: "start",
    });
    x += BAR_HEIGHT + 16 + text.length * SIZE * 0.6 + 12;
  };
  if (matrix.kind === "mask") swatch(palette.faint, t`visible`);
  swatch(null, t`hidden`);
  return shapes;
}
