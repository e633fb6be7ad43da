// The task: a curve from noisy samples of it.

/** Samples of a training, one in each of so many equal parts of [-1, 1]. */
export const COUNT = 48;
/** Standard deviation. */
export const NOISE = 0.25;
/** Places at which the fit is drawn and compared with the curve. */
export const GRID = Float32Array.from({ length: 161 }, (_, i) => i / 80 - 1);

export const curveAt = (x: number): number => Math.sin(4 * x) + x / 2;

export interface Samples {
  /** Ascending. */
  x: Float32Array;
  y: Float32Array;
}

export function drawSamples(count: number, uniform: () => number, normal: () => number): Samples {
  const x = Float32Array.from({ length: count }, (_, i) => (2 * (i + uniform())) / count - 1);
  return { x, y: x.map((place) => curveAt(place) + NOISE * normal()) };
}

export function meanSquare(predicted: ArrayLike<number>, y: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < y.length; i++) sum += ((predicted[i] as number) - (y[i] as number)) ** 2;
  return sum / y.length;
}

/** The share of the curve's variance that a fit on GRID explains: 1 is all of it, a mean explains 0. */
export function explained(fitted: ArrayLike<number>): number {
  const truth = GRID.map(curveAt);
  const mean = truth.reduce((a, b) => a + b) / truth.length;
  return (
    1 - meanSquare(fitted, truth) / meanSquare(new Float32Array(truth.length).fill(mean), truth)
  );
}
