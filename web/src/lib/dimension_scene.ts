// A score taken apart: what each dimension of a query and a key adds to their product.
import { fixed } from "./format.js";
import { signedPosition } from "./matrix.js";
import type { Palette } from "./palette.js";
import { rampColour } from "./ramp.js";
import type { Scene, Shape } from "./scene.js";

/** q_d * k_d * scale for every dimension d: their sum is the scaled score. */
export function dimensionProducts(
  q: ArrayLike<number>,
  k: ArrayLike<number>,
  scale: number,
): readonly number[] {
  return Array.from({ length: q.length }, (_, d) => (q[d] ?? 0) * (k[d] ?? 0) * scale);
}

/** The dimensions that add most and take most; -1 where none does. */
export function extremes(products: readonly number[]): { most: number; least: number } {
  const best = (wants: (value: number, than: number) => boolean) =>
    products.reduce(
      (at, value, d) => (wants(value, at < 0 ? 0 : (products[at] ?? 0)) ? d : at),
      -1,
    );
  return { most: best((a, b) => a > b), least: best((a, b) => a < b) };
}

const SIZE = 11;
const LINE = 16;
const GAP = 2;
const WIDEST = 34;
/** Bars narrower than this have no numbers on them. */
const NUMBERED = 24;

/** The products of every key that a picture has to have room for. */
export interface ProductRange {
  least: number;
  most: number;
}

export const rangeOf = (all: readonly (readonly number[])[]): ProductRange => ({
  least: Math.min(0, ...all.flat()),
  most: Math.max(0, ...all.flat()),
});

/** Bars up and down from zero, with the dimension's number below. */
export function dimensionScene(
  products: readonly number[],
  { least, most }: ProductRange,
  palette: Palette,
  width: number,
  height: number,
): Scene {
  const count = Math.max(1, products.length);
  const pitch = Math.min(WIDEST, width / count);
  // Numbers stand beyond the bars, below those that point down too.
  const [top, bottom] = [LINE, height - (least < 0 ? 2 : 1) * LINE - 4];
  const unit = (bottom - top) / Math.max(most - least, 1e-6);
  const zero = top + most * unit;
  const strongest = Math.max(most, -least, 1e-6);
  const shapes: Shape[] = [];
  products.forEach((value, d) => {
    const tall = Math.abs(value) * unit;
    const box = {
      x: d * pitch,
      y: value > 0 ? zero - tall : zero,
      width: pitch - GAP,
      height: tall,
    };
    // As strong as the far ends of the map's colours, so that short bars are seen too.
    const side = Math.sign(value) * (0.35 + 0.65 * (Math.abs(value) / strongest));
    shapes.push({
      kind: "rect",
      fill: rampColour(palette.ramps.score, signedPosition(side, 1)),
      ...box,
    });
    const text = { kind: "text", x: box.x + box.width / 2, size: SIZE, anchor: "middle" } as const;
    const beyond = value > 0 ? zero - tall - LINE / 2 : zero + tall + LINE / 2;
    if (pitch >= NUMBERED)
      shapes.push({ ...text, y: beyond, text: fixed(value, 2), fill: palette.ink });
    shapes.push({ ...text, y: height - LINE / 2, text: String(d + 1), fill: palette.soft });
  });
  const line = [[0, zero] as const, [pitch * count - GAP, zero] as const];
  shapes.push({ kind: "path", points: line, stroke: palette.soft, line: 1 });
  return { width, height, background: palette.background, hatch: palette.hatch, shapes };
}
