// The plane of keys as a picture: a colour for the score at each place, the query as an arrow, one key as a
// point.
import type { Palette } from "../../lib/palette.js";
import type { Scene, Shape } from "../../lib/scene.js";
import { type Point, REACH, SIDE } from "./plane.js";

export interface PlanePicture {
  field: ArrayLike<number>;
  /** The score of the strongest colour, on either side of 0. */
  limit: number;
  query: Point;
  /** A second arrow: what the keys are multiplied by, where that is not the query. */
  seen?: Point | undefined;
  key: Point;
  pinned: boolean;
}

const HEAD = 9;

/** From a point of the plane to CSS pixels of a square of `side`. */
export const placeIn = (side: number, [x, y]: Point): Point => {
  const step = side / SIDE;
  const place = (value: number) => ((value + REACH) / (2 * REACH)) * (side - step) + step / 2;
  return [place(x), side - place(y)];
};

/** The cell under a place in CSS pixels, or null. */
export function cellUnder(side: number, x: number, y: number) {
  const [row, column] = [Math.floor((y / side) * SIDE), Math.floor((x / side) * SIDE)];
  const inside = row >= 0 && column >= 0 && row < SIDE && column < SIDE;
  return inside ? { row, column } : null;
}

function arrow(from: Point, to: Point, stroke: string, dash: boolean): Shape[] {
  const long = Math.hypot(to[0] - from[0], to[1] - from[1]);
  if (long < 1) return [];
  const [x, y] = [(to[0] - from[0]) / long, (to[1] - from[1]) / long];
  const barb = (turn: number): Point => [
    to[0] - HEAD * (x * Math.cos(turn) - y * Math.sin(turn)),
    to[1] - HEAD * (y * Math.cos(turn) + x * Math.sin(turn)),
  ];
  return [
    { kind: "path", points: [from, to], stroke, line: 3, dash },
    { kind: "path", points: [barb(0.45), to, barb(-0.45)], stroke, line: 3 },
  ];
}

export function planeScene(picture: PlanePicture, palette: Palette, side: number): Scene {
  const { field, limit, query, seen, key, pinned } = picture;
  const ramp = palette.ramps.score;
  const shapes: Shape[] = [];
  // Whole pixels: fractions would draw seams between cells.
  const edge = (at: number) => Math.round((at * side) / SIDE);
  for (let cell = 0; cell < SIDE * SIDE; cell++) {
    const [row, column] = [Math.floor(cell / SIDE), cell % SIDE];
    const part = Math.max(0, Math.min(1, 0.5 + (field[cell] as number) / (2 * limit)));
    const fill = ramp[Math.round(part * (ramp.length - 1))] ?? palette.background;
    const [x, y] = [edge(column), edge(row)];
    shapes.push({
      kind: "rect",
      x,
      y,
      width: edge(column + 1) - x,
      height: edge(row + 1) - y,
      fill,
    });
  }
  const middle = placeIn(side, [0, 0]);
  const line = (points: readonly Point[]): Shape => ({
    kind: "path",
    points,
    stroke: palette.soft,
    line: 1,
  });
  shapes.push(
    line([
      [0, middle[1]],
      [side, middle[1]],
    ]),
    line([
      [middle[0], 0],
      [middle[0], side],
    ]),
  );
  if (seen) shapes.push(...arrow(middle, placeIn(side, seen), palette.ink, true));
  shapes.push(...arrow(middle, placeIn(side, query), palette.roleText.query, false));
  const [x, y] = placeIn(side, key);
  shapes.push({
    kind: "dot",
    x,
    y,
    radius: pinned ? 8 : 6,
    fill: palette.roleText.key,
    stroke: palette.background,
  });
  shapes.push({
    kind: "frame",
    x: 0.5,
    y: 0.5,
    width: side - 1,
    height: side - 1,
    stroke: palette.faint,
    line: 1,
  });
  return {
    width: side,
    height: side,
    background: palette.background,
    hatch: palette.hatch,
    shapes,
  };
}
