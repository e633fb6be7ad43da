// A set of points in a plane, pooled by a few learned queries; values are the points themselves.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import { hashText, normalSource } from "../../lib/random.js";

export const MOST = 12;
export const MOST_SEEDS = 4;
/** Half the side of the plane. */
export const EDGE = 2.5;
const INSIDE = 2.2;

export const POINTS: readonly (readonly [number, number])[] = (() => {
  const normal = normalSource(hashText("a set of points"));
  const within = () => Math.max(-INSIDE, Math.min(INSIDE, 1.1 * normal()));
  return Array.from({ length: MOST }, () => [within(), within()] as const);
})();

export interface Setting {
  members: number;
  seeds: number;
  /** Where the first seed looks, in degrees; the others are spread evenly from there. */
  direction: number;
  length: number;
}
export const RESTING: Setting = { members: 9, seeds: 3, direction: 30, length: 2 };
export const LENGTHS: readonly number[] = Array.from({ length: 33 }, (_, at) => at / 4);

/** Unit vectors. */
export const directionsOf = ({ seeds, direction }: Setting): (readonly [number, number])[] =>
  Array.from({ length: seeds }, (_, seed) => {
    const angle = ((direction + (360 * seed) / seeds) * Math.PI) / 180;
    return [Math.cos(angle), Math.sin(angle)] as const;
  });

export interface Pooled {
  called: Called;
  /** [seeds, members] */
  weights: Float32Array;
  /** [seeds, 2] */
  output: Float32Array;
  /** How far the output is from that of the same members in reverse order. */
  difference: number;
  /** [LENGTHS, 2]: where the first seed's output would be for each length. */
  path: Float32Array;
}

export function pooled(heed: Heed, setting: Setting): Pooled {
  const members = POINTS.slice(0, setting.members);
  const directions = directionsOf(setting);
  const set = (points: typeof members) => floats(points.flat(), [1, 1, points.length, 2]);
  const queries = (vectors: readonly (readonly number[])[]) =>
    floats(vectors.flat(), [1, vectors.length, 2]);
  const asked = queries(directions.map((seed) => seed.map((x) => x * setting.length)));
  const params = { scale: 1, returnWeights: true };
  const inputs = { queries: asked, k: set(members), v: set(members) };
  const called = make(heed, { id: "attention_pooling", inputs, params });
  const reversed = set(members.toReversed());
  const other = heed.run("attention_pooling", { queries: asked, k: reversed, v: reversed }, params);
  const first = directions[0] ?? [1, 0];
  const sharper = queries(LENGTHS.map((length) => first.map((x) => x * length)));
  const path = heed.run("attention_pooling", { ...inputs, queries: sharper }, { scale: 1 });
  const output = resultOf(called, "output").data;
  const apart = output.map((x, at) => Math.abs(x - (other.output.data[at] as number)));
  return {
    called,
    weights: resultOf(called, "weights").data,
    output,
    difference: Math.max(...apart),
    path: path.output.data as Float32Array,
  };
}
