// Tokens on a circle, hashed into buckets by random rotations: those of one bucket attend to each
// other. The rotations are given to heed, so that the buckets can be drawn.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import { hashText, normalSource } from "../../lib/random.js";

export const TOKENS = 36;
export const DIM = 2;
const SIZE = 3;
const GROUPS = [0.4, 1.9, 3.3, 5.2] as const;

/** Angles of the tokens: loose groups, in an order that has nothing to do with them. */
export const ANGLES: readonly number[] = (() => {
  const normal = normalSource(hashText("reformer tokens"));
  return Array.from(
    { length: TOKENS },
    (_, t) => (GROUPS[t % GROUPS.length] as number) + 0.32 * normal(),
  );
})();

/** Tokens in the order of their angles. */
export const AROUND: readonly number[] = ANGLES.map((_, t) => t).sort(
  (a, b) => turn(ANGLES[a] as number) - turn(ANGLES[b] as number),
);

function turn(angle: number): number {
  return ((angle % (2 * Math.PI)) + 2 * Math.PI) % (2 * Math.PI);
}

export const POINTS = floats(
  ANGLES.flatMap((angle) => [SIZE * Math.cos(angle), SIZE * Math.sin(angle)]),
  [1, 1, TOKENS, DIM],
);
const UNIT = floats(
  Array.from({ length: TOKENS * TOKENS }, (_, at) =>
    Math.floor(at / TOKENS) === at % TOKENS ? 1 : 0,
  ),
  [1, 1, TOKENS, TOKENS],
);

export interface Hashing {
  rounds: number;
  buckets: number;
  seed: number;
}

/** [rounds, DIM, buckets / 2] */
export function rotationsOf({ rounds, buckets, seed }: Hashing): Float32Array {
  const normal = normalSource(hashText(`rotations ${seed}`));
  const all = Float32Array.from({ length: 8 * DIM * 8 }, normal);
  return all.subarray(0, (rounds * DIM * buckets) / 2);
}

export interface Hashed {
  called: Called;
  /** [TOKENS, TOKENS] */
  weights: Float32Array;
  /** Weights if all tokens shared one bucket. */
  full: Float32Array;
  /** Bucket of each token in each round. */
  bucketOf: number[][];
  /** The share of the full weights that goes to keys which are seen. */
  covered: number;
}

/** Neighbours on the circle that share a bucket, and where the number of it stands. */
export interface BucketRun {
  bucket: number;
  /** The middle of its arc. */
  angle: number;
  /** One step further out, as the number before it is near. */
  outside: boolean;
}

/** Of numbers on the circle, in radians. */
const NEAR = 0.13;

/** Once around: `buckets` of each token. */
export function bucketRuns(buckets: readonly number[]): BucketRun[] {
  const around = AROUND.map((t) => ({ bucket: buckets[t] ?? 0, angle: turn(ANGLES[t] as number) }));
  const start = around.findIndex(({ bucket }, at) => bucket !== around.at(at - 1)?.bucket);
  const first = Math.max(0, start);
  const arcs: { bucket: number; from: number; to: number }[] = [];
  for (const [at, { bucket, angle }] of [
    ...around.slice(first),
    ...around.slice(0, first),
  ].entries()) {
    const further = at < around.length - first ? angle : angle + 2 * Math.PI;
    const arc = arcs.at(-1);
    if (arc?.bucket === bucket) arc.to = further;
    else arcs.push({ bucket, from: further, to: further });
  }
  const runs: BucketRun[] = [];
  for (const { bucket, from, to } of arcs) {
    const [angle, before] = [(from + to) / 2, runs.at(-1)];
    const outside = before !== undefined && !before.outside && angle - before.angle < NEAR;
    runs.push({ bucket, angle, outside });
  }
  return runs;
}

/** argmax of [x R; -x R], as the paper hashes. */
function bucketsOf(rotations: Float32Array, { rounds, buckets }: Hashing): number[][] {
  const half = buckets / 2;
  return Array.from({ length: rounds }, (_, round) =>
    ANGLES.map((_, t) => {
      const products = Array.from({ length: half }, (_, b) => {
        const at = round * DIM * half + b;
        const [x, y] = [POINTS.data[t * DIM] as number, POINTS.data[t * DIM + 1] as number];
        return x * (rotations[at] as number) + y * (rotations[at + half] as number);
      });
      const both = [...products, ...products.map((product) => -product)];
      return both.indexOf(Math.max(...both));
    }),
  );
}

export function hashed(heed: Heed, hashing: Hashing): Hashed {
  const rotations = rotationsOf(hashing);
  const { rounds, buckets } = hashing;
  const inputs = { q: POINTS, v: UNIT, rotations: floats(rotations, [rounds, DIM, buckets / 2]) };
  const params = { hashChunk: TOKENS, returnWeights: true };
  const called = make(heed, { id: "reformer", inputs, params });
  const weights = called.results.weights?.data as Float32Array;
  const whole = { hashBuckets: 1, hashRounds: 1, hashChunk: TOKENS, returnWeights: true };
  const full = heed.run("reformer", { q: POINTS, v: UNIT }, whole).weights?.data as Float32Array;
  const seen = full.reduce(
    (sum, weight, at) => sum + ((weights[at] as number) > 0 ? weight : 0),
    0,
  );
  return { called, weights, full, bucketOf: bucketsOf(rotations, hashing), covered: seen / TOKENS };
}
