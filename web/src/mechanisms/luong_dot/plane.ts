// One query and all keys of a plane: the score at every place, along the direction of one key, and around
// the circle that it is on.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleParams, ExampleTensor } from "../../lib/example.js";

/** Keys of the picture: SIDE rows from the top, SIDE columns from the left, both from -REACH to REACH. */
export const SIDE = 41;
export const REACH = 2;
export const LENGTHS: readonly number[] = Array.from({ length: 51 }, (_, at) => at / 20);
/** From the query's direction, in degrees. */
export const ANGLES: readonly number[] = Array.from({ length: 73 }, (_, at) => 5 * at - 180);

export type Point = readonly [number, number];

export interface Query {
  /** In degrees, counterclockwise from the right. */
  angle: number;
  length: number;
}
export const RESTING: Query = { angle: 30, length: 1 };

export interface Score {
  id: string;
  params?: ExampleParams;
  extra?: Readonly<Record<string, ExampleTensor>>;
}

export const at = (angle: number, length: number): Point => {
  const radians = (angle * Math.PI) / 180;
  return [length * Math.cos(radians), length * Math.sin(radians)];
};
export const keyAt = (row: number, column: number): Point => {
  const place = (step: number) => (2 * REACH * step) / (SIDE - 1) - REACH;
  return [place(column), -place(row)];
};
export const lengthOf = ([x, y]: Point): number => Math.hypot(x, y);
/** From -180 to 180, in degrees. */
export const angleOf = ([x, y]: Point): number => (Math.atan2(y, x) * 180) / Math.PI;

const GRID: readonly Point[] = Array.from({ length: SIDE * SIDE }, (_, cell) =>
  keyAt(Math.floor(cell / SIDE), cell % SIDE),
);

export interface Plane {
  called: Called;
  /** [SIDE, SIDE] */
  field: Float32Array;
  /** At LENGTHS in the direction of the key, and at ANGLES from the query with the key's length. */
  along: Float32Array;
  around: Float32Array;
  /** The scores of the keys (1, 0) and (0, 1): for a score that is linear in the key, what it is multiplied by. */
  unit: Float32Array;
}

export function plane(heed: Heed, score: Score, query: Query, key: Point): Plane {
  const direction = angleOf(key);
  const keys = [
    ...GRID,
    ...LENGTHS.map((length) => at(direction, length)),
    ...ANGLES.map((angle) => at(query.angle + angle, lengthOf(key))),
    [1, 0],
    [0, 1],
  ];
  const k = floats(keys.flat(), [1, 1, keys.length, 2]);
  const q = floats([...at(query.angle, query.length)], [1, 1, 1, 2]);
  const params = { ...score.params, returnScores: "raw" };
  const called = make(heed, { id: score.id, inputs: { q, k, v: k, ...score.extra }, params });
  const scores = called.results.scores?.data as Float32Array;
  const ends = [GRID.length, LENGTHS.length, ANGLES.length, 2];
  const starts = ends.map((_, part) => ends.slice(0, part).reduce((sum, count) => sum + count, 0));
  const [field, along, around, unit] = ends.map((count, part) =>
    scores.subarray(starts[part], (starts[part] as number) + count),
  ) as [Float32Array, Float32Array, Float32Array, Float32Array];
  return { called, field, along, around, unit };
}
