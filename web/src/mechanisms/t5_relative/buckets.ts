// T5's buckets: which one a distance falls into, and the bias that it has there. Queries and keys are 0, so
// that the score of a pair is its bias.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";

/** The plotted distances go from -FAR to FAR. */
export const FAR = 160;
const LEN = 2 * FAR + 1;
export const BUCKETS = [4, 8, 16, 32] as const;
/** More than there are buckets of single distances: 16 at most. */
export const FARTHEST = [32, 64, 128] as const;
export type Direction = "bidirectional" | "causal";

export interface Buckets {
  count: (typeof BUCKETS)[number];
  farthest: (typeof FARTHEST)[number];
  direction: Direction;
}
export const RESTING: Buckets = { count: 32, farthest: 128, direction: "bidirectional" };

/** As a trained head might have them: near keys are liked, with its own taste for each bucket. */
export function biases({ count, direction }: Buckets): number[] {
  const normal = normalSource(hashText("t5 bias"));
  const half = direction === "causal" ? count : count / 2;
  return Array.from({ length: count }, (_, at) => 2 - (4 * (at % half)) / half + 0.4 * normal());
}

const zeros = (len: number): ExampleTensor =>
  floats(
    Array.from({ length: len }, () => 0),
    [1, 1, len, 1],
  );

export interface Bucketed {
  called: Called;
  /** Of the distances key minus query from -FAR to FAR. */
  bias: Float32Array;
  bucket: Float32Array;
}

/** One query in the middle of LEN keys. */
export function bucketed(heed: Heed, buckets: Buckets): Bucketed {
  const { count, farthest, direction } = buckets;
  const inputs = { q: zeros(1), k: zeros(LEN), v: zeros(LEN) };
  const params = {
    bucketMaxDistance: farthest,
    bucketDirection: direction,
    queryOffset: FAR,
    returnScores: "biased",
  };
  const table = (values: readonly number[]) => ({
    ...inputs,
    bucketBias: floats(values, [count, 1]),
  });
  const called = make(heed, { id: "t5_relative", inputs: table(biases(buckets)), params });
  // With its own number as its bias, the score of a pair is the bucket it is in.
  const numbers = Array.from({ length: count }, (_, at) => at);
  const named = heed.run("t5_relative", table(numbers), params);
  return {
    called,
    bias: called.results.scores?.data as Float32Array,
    bucket: named.scores?.data as Float32Array,
  };
}

export interface Step {
  bucket: number;
  /** First and last distance, key minus query. */
  from: number;
  to: number;
  bias: number;
}

/** Neighbouring distances that share a bucket. */
export function stepsOf({ bias, bucket }: Pick<Bucketed, "bias" | "bucket">): Step[] {
  const steps: Step[] = [];
  bucket.forEach((number, at) => {
    const distance = at - FAR;
    const last = steps.at(-1);
    if (last?.bucket === number) last.to = distance;
    else steps.push({ bucket: number, from: distance, to: distance, bias: bias[at] as number });
  });
  return steps;
}
