// A stick of length 1, from which keys break pieces, the nearest first: one line of the picture for each.
import { fixed } from "../../lib/format.js";
import { t } from "../../lib/messages.js";
import type { Palette } from "../../lib/palette.js";
import type { Scene, Shape } from "../../lib/scene.js";
import { roomFor } from "../../lib/text_width.js";

export interface Piece {
  /** From 0. */
  key: number;
  /** What was left before this key, and what it takes of that. */
  left: number;
  weight: number;
}

/** From the last key, which is the nearest, backwards. */
export function piecesOf(weights: ArrayLike<number>): { pieces: Piece[]; rest: number } {
  let left = 1;
  const pieces: Piece[] = [];
  for (let key = weights.length - 1; key >= 0; key--) {
    const weight = weights[key] as number;
    pieces.push({ key, left, weight });
    left -= weight;
  }
  return { pieces, rest: Math.max(0, left) };
}

const LINE = 26;
const THICK = 14;
const SIZE = 12;
/** Between the stick and the words beside it. */
const GAP = 12;

export const stickHeight = (keys: number): number => LINE * (keys + 1);

export function stickScene(weights: ArrayLike<number>, palette: Palette, width: number): Scene {
  const { pieces, rest } = piecesOf(weights);
  const keyName = (key: number) => t`key ${key + 1}`;
  const share = (weight: number, of: number) => t`${fixed(weight, 2)}, of ${fixed(of, 2)} left`;
  const left = GAP + roomFor([...pieces.map(({ key }) => keyName(key)), t`nobody`], SIZE);
  const right = GAP + roomFor([share(1, 1)], SIZE);
  const long = Math.max(0, Math.min(640, width) - left - right);
  const shapes: Shape[] = [];
  const text = { kind: "text", size: SIZE } as const;
  const fill = palette.ramps.key.at(-1) ?? palette.ink;
  const words = (y: number, name: string, said: string, tone: string) => {
    shapes.push({ ...text, x: left - GAP, y, text: name, anchor: "end", fill: tone });
    shapes.push({
      ...text,
      x: left + long + GAP,
      y,
      text: said,
      anchor: "start",
      fill: palette.soft,
    });
  };
  pieces.forEach(({ key, left: before, weight }, at) => {
    const y = at * LINE + (LINE - THICK) / 2;
    const box = { y, height: THICK, x: left + (1 - before) * long };
    shapes.push({ kind: "rect", ...box, width: weight * long, fill });
    shapes.push({ kind: "frame", ...box, width: before * long, stroke: palette.soft, line: 1 });
    words(y + THICK / 2, keyName(key), share(weight, before), palette.roleText.key);
  });
  const y = pieces.length * LINE + (LINE - THICK) / 2;
  shapes.push({ kind: "hatch", x: left + (1 - rest) * long, y, width: rest * long, height: THICK });
  words(y + THICK / 2, t`nobody`, fixed(rest, 2), palette.soft);
  const { background, hatch } = palette;
  return { width, height: stickHeight(pieces.length), background, hatch, shapes };
}
