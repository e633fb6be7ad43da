// The only place that calls heed for the sentence figure: options in, scores and weights out.
import type { Heed } from "heed";
import { type MaskRules, paintedKeep } from "./mask.js";
import { HEAD_DIM, HEADS, type Projected } from "./vectors.js";

/** 1 / sqrt(head_dim): the factor on q.k at temperature 1. */
export const DEFAULT_SCALE = 1 / Math.sqrt(HEAD_DIM);

export interface ScoreSettings {
  /** T > 0; the scale is s = 1 / (T sqrt(head_dim)). */
  temperature: number;
  softcap: number | null;
  /** ALiBi slope m >= 0 of every head; 0 = off. */
  alibi: number;
}

/** One call's results; matrices are [head, query, key] or [head, query, dimension]. */
export interface Attended {
  length: number;
  /** q.k times the scale. */
  raw: Float32Array;
  /** After softcap. */
  capped: Float32Array;
  /** After ALiBi: what softmax sees; -Infinity where hidden. */
  scores: Float32Array;
  weights: Float32Array;
  output: Float32Array;
  milliseconds: number;
}

export interface Agreement {
  /** max |output - float64 reference| and the same for the weights, over all heads. */
  output: number;
  weights: number;
}

export function scaleOf(settings: ScoreSettings): number {
  return DEFAULT_SCALE / settings.temperature;
}

/** The tensors and parameters of a call, in the form that `attention` and `reference` share. */
export function request(projected: Projected, settings: ScoreSettings, rules: MaskRules) {
  const { length } = projected;
  const heads = HEADS.length;
  const shape = [1, heads, length, HEAD_DIM];
  const keep = paintedKeep(rules.hidden, length);
  const window = {
    ...(rules.left !== null && { left: rules.left }),
    ...(rules.right !== null && { right: rules.right }),
  };
  return {
    tensors: {
      q: { data: projected.q, shape },
      k: { data: projected.k, shape },
      v: { data: projected.v, shape },
    },
    extras: {
      ...(keep && { keep: { data: keep, shape: [length, length] } }),
      ...(rules.first !== null && {
        keyLengths: { data: Int32Array.of(Math.min(rules.first, length)), shape: [1] },
      }),
      ...(settings.alibi > 0 && {
        alibiSlopes: { data: new Float32Array(heads).fill(settings.alibi), shape: [heads] },
      }),
    },
    params: {
      scale: scaleOf(settings),
      causal: rules.causal,
      ...(settings.softcap !== null && { softcap: settings.softcap }),
      ...(Object.keys(window).length > 0 && { window }),
    },
  };
}

export function attend(
  heed: Heed,
  projected: Projected,
  settings: ScoreSettings,
  rules: MaskRules,
): Attended {
  const { tensors, extras, params } = request(projected, settings, rules);
  const { q, k, v } = tensors;
  const options = { ...extras, ...params };
  const start = performance.now();
  const result = heed.attention(q, k, v, { ...options, returnWeights: true });
  const milliseconds = performance.now() - start;
  const scoresAt = (stage: "raw" | "capped" | "biased") =>
    heed.attention(q, k, v, { ...options, returnScores: stage }).scores.data as Float32Array;
  return {
    length: projected.length,
    raw: scoresAt("raw"),
    capped: scoresAt("capped"),
    scores: scoresAt("biased"),
    weights: result.weights.data as Float32Array,
    output: result.output.data as Float32Array,
    milliseconds,
  };
}

/** How long the same call takes once more, in milliseconds. */
export function timeCall(
  heed: Heed,
  projected: Projected,
  settings: ScoreSettings,
  rules: MaskRules,
): number {
  const { tensors, extras, params } = request(projected, settings, rules);
  const start = performance.now();
  heed.attention(tensors.q, tensors.k, tensors.v, { ...extras, ...params, returnWeights: true });
  return performance.now() - start;
}

/** Largest absolute difference; a NaN on either side alone counts as infinite. */
export function largestDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let largest = 0;
  for (let index = 0; index < a.length; index++) {
    const x = a[index] ?? Number.NaN;
    const y = b[index] ?? Number.NaN;
    if (Object.is(x, y) || x === y) continue;
    const difference = Math.abs(x - y);
    if (!(difference <= largest)) largest = Number.isNaN(difference) ? Infinity : difference;
  }
  return largest;
}

/** Runs the float64 oracle on the same request and compares. */
export async function checkAgainstReference(
  heed: Heed,
  projected: Projected,
  settings: ScoreSettings,
  rules: MaskRules,
  attended: Attended,
): Promise<Agreement> {
  const { tensors, extras, params } = request(projected, settings, rules);
  const truth = await heed.reference(
    "scaled_dot_product",
    { ...tensors, ...extras },
    { ...params, returnWeights: true },
  );
  return {
    output: largestDifference(attended.output, truth.output.data as Float64Array),
    weights: truth.weights
      ? largestDifference(attended.weights, truth.weights.data as Float64Array)
      : Infinity,
  };
}
