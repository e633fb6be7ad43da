// Softmax attention and its estimate by random features, for more and more of them.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";

export const COUNTS: readonly number[] = [4, 8, 16, 32, 64, 128, 256, 512, 1024];
export const SEEDS = 4;
export const LENGTH = 24;
const DIM = 16;

const draw = (name: string): Float32Array => {
  const normal = normalSource(hashText(`performer ${name}`));
  return Float32Array.from({ length: LENGTH * DIM }, normal);
};
const [Q, K] = [draw("q"), draw("k")];

/** Values are unit vectors, so that the output is the matrix of weights. */
const UNIT = floats(
  Array.from({ length: LENGTH * LENGTH }, (_, at) =>
    Math.floor(at / LENGTH) === at % LENGTH ? 1 : 0,
  ),
  [1, 1, LENGTH, LENGTH],
);

/** |estimate - exact| / |exact| (Frobenius) for one number of features: the mean, and every seed's. */
export interface FeatureError {
  count: number;
  mean: number;
  all: number[];
}

export interface Estimate {
  called: Called;
  /** [LENGTH, LENGTH] */
  exact: Float32Array;
  weights: Float32Array;
}

function relativeError(estimate: Float32Array, exact: Float32Array): number {
  let [difference, total] = [0, 0];
  exact.forEach((wanted, at) => {
    difference += (wanted - (estimate[at] as number)) ** 2;
    total += wanted * wanted;
  });
  return Math.sqrt(difference / total);
}

/** `size` multiplies queries and keys: the larger they are, the harder exp(q.k) is to estimate. */
function inputsOf(size: number): Record<string, ExampleTensor> {
  const scaled = (all: Float32Array) =>
    floats(
      all.map((value) => size * value),
      [1, 1, LENGTH, DIM],
    );
  return { q: scaled(Q), k: scaled(K), v: UNIT };
}

type Inputs = ReturnType<typeof inputsOf>;

const exactWeights = (heed: Heed, inputs: Inputs): Float32Array =>
  heed.run("scaled_dot_product", inputs).output.data as Float32Array;

const call = (heed: Heed, inputs: Inputs, numFeatures: number, featureSeed: number): Called =>
  make(heed, { id: "performer", inputs, params: { numFeatures, featureSeed } });

const weightsOf = ({ results }: Called) => results.output?.data as Float32Array;

export function estimate(
  heed: Heed,
  size: number,
  numFeatures: number,
  featureSeed: number,
): Estimate {
  const inputs = inputsOf(size);
  const called = call(heed, inputs, numFeatures, featureSeed);
  return { called, exact: exactWeights(heed, inputs), weights: weightsOf(called) };
}

export function featureErrors(heed: Heed, size: number): FeatureError[] {
  const inputs = inputsOf(size);
  const exact = exactWeights(heed, inputs);
  return COUNTS.map((count) => {
    const all = Array.from({ length: SEEDS }, (_, seed) =>
      relativeError(weightsOf(call(heed, inputs, count, seed)), exact),
    );
    return { count, mean: all.reduce((sum, error) => sum + error, 0) / SEEDS, all };
  });
}
