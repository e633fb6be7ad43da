// The worked examples: small problems with known answers, computed by heed like everything else.
import type { Heed } from "heed";
import { hashText, normalSource, uniformSource } from "./random.js";
import type { Kernel } from "./snapshot.js";

export interface DotExample {
  /** [2, 3], [2, 3], [2, 2]. */
  scores: Float32Array;
  weights: Float32Array;
  output: Float32Array;
}

/** Q [2, 2], K [3, 2], V [3, 2], row-major one after the other in `numbers`. */
export function dotExample(heed: Heed, numbers: readonly number[]): DotExample {
  const part = (from: number, rows: number) => ({
    data: Float32Array.from(numbers.slice(from, from + 2 * rows)),
    shape: [rows, 2],
  });
  const q = part(0, 2);
  const k = part(4, 3);
  const v = part(10, 3);
  const result = heed.attention(q, k, v, { returnWeights: true, returnScores: "raw" });
  return {
    scores: result.scores.data,
    weights: result.weights.data,
    output: result.output.data,
  };
}

const LENGTHS_BATCH = 2;
const LENGTHS_ROWS = 2;
export const LENGTHS_COLUMNS = 4;

/** Uniform scores in [0, 1) with two decimals, [2, 2, 4]: the same on every visit. */
export const LENGTHS_SCORES: Float32Array<ArrayBuffer> = (() => {
  const uniform = uniformSource(hashText("masked softmax"));
  const count = LENGTHS_BATCH * LENGTHS_ROWS * LENGTHS_COLUMNS;
  return Float32Array.from({ length: count }, () => Math.round(uniform() * 100) / 100);
})();

/**
 * The softmax of each row over its first `lengths[batch]` columns, [2, 2, 4]. It is attention with
 * the scores as queries, the unit vectors as keys and a scale of 1.
 */
export function maskedSoftmax(heed: Heed, lengths: readonly [number, number]) {
  const columns = LENGTHS_COLUMNS;
  const unit = Float32Array.from({ length: LENGTHS_BATCH * columns * columns }, (_, at) => {
    const within = at % (columns * columns);
    return Math.floor(within / columns) === within % columns ? 1 : 0;
  });
  const keys = { data: unit, shape: [LENGTHS_BATCH, columns, columns] };
  const result = heed.attention(
    { data: LENGTHS_SCORES, shape: [LENGTHS_BATCH, LENGTHS_ROWS, columns] },
    keys,
    keys,
    {
      scale: 1,
      keyLengths: { data: Int32Array.from(lengths), shape: [LENGTHS_BATCH] },
      returnWeights: true,
      returnScores: "biased",
    },
  );
  return { weights: result.weights.data, scores: result.scores.data };
}

export const POINTS = 40;
export const QUERIES = 51;
export const DOMAIN = 5;
const NOISE = 0.5;

export function truth(x: number): number {
  return 2 * Math.sin(x) + x;
}

export interface Sample {
  /** Sorted, [POINTS]. */
  x: Float32Array<ArrayBuffer>;
  y: Float32Array<ArrayBuffer>;
  /** Where the curve is estimated, [QUERIES]. */
  at: Float32Array<ArrayBuffer>;
}

export const SAMPLE: Sample = (() => {
  const seed = hashText("2 sin x + x");
  const uniform = uniformSource(seed);
  const normal = normalSource(seed + 1);
  const x = Float32Array.from({ length: POINTS }, () => DOMAIN * uniform()).sort();
  return {
    x,
    y: x.map((value) => truth(value) + NOISE * normal()),
    at: Float32Array.from({ length: QUERIES }, (_, i) => (DOMAIN * i) / (QUERIES - 1)),
  };
})();

export interface Regression {
  /** [QUERIES] */
  estimate: Float32Array;
  /** [QUERIES, POINTS] */
  weights: Float32Array;
  /** Rows whose kernel reaches no point: heed returns 0 there and the curve has a gap. */
  empty: boolean[];
  /** max |estimate - float64 reference|. */
  error: Promise<number>;
}

export function regression(heed: Heed, kernel: Kernel, width: number): Regression {
  const inputs = {
    q: { data: SAMPLE.at, shape: [QUERIES, 1] },
    k: { data: SAMPLE.x, shape: [POINTS, 1] },
    v: { data: SAMPLE.y, shape: [POINTS, 1] },
  };
  const params = { kernel, width, returnWeights: true };
  const result = heed.run("kernel_regression", inputs, params);
  const estimate = result.output.data as Float32Array;
  const weights = result.weights?.data as Float32Array;
  const empty = Array.from({ length: QUERIES }, (_, row) =>
    weights.subarray(row * POINTS, (row + 1) * POINTS).every((weight) => weight === 0),
  );
  const error = heed
    .reference("kernel_regression", inputs, params)
    .then(({ output }) =>
      estimate.reduce(
        (most, value, i) => Math.max(most, Math.abs(value - Number(output.data[i]))),
        0,
      ),
    );
  return { estimate, weights, empty, error };
}
