// Softmax written down in plain float32 steps, to show what a formula gives when nobody takes care.
import type { Variant } from "./cases.js";

/** [queries, keys] */
export interface Scores {
  values: Float32Array;
  columns: number;
}

/** What becomes of a score; `visible`: the mask lets it through. */
export type Hide = (score: number, visible: boolean) => number;

/** Adds a number where a key is hidden; −Infinity replaces the score. */
export const fillWith =
  (fill: number): Hide =>
  (score, visible) => {
    if (visible) return score;
    return fill === -Infinity ? fill : score + fill;
  };

/** e^s over its sum in float32, for one head of one dimension; "safe" subtracts the largest first. */
export function plainWeights(
  { inputs, params }: Variant,
  hide: Hide,
  form: "safe" | "as written" = "safe",
): Scores {
  const q = inputs.q?.data ?? [];
  const k = inputs.k?.data ?? [];
  const columns = k.length;
  const values = new Float32Array(q.length * columns);
  for (let i = 0; i < q.length; i++) {
    const scores = Float32Array.from({ length: columns }, (_, j) => {
      const score = Number(params.scale ?? 1) * Number(q[i]) * Number(k[j]);
      return hide(score, (inputs.keep?.data[i * columns + j] ?? 1) === 1);
    });
    const top = form === "safe" ? Math.max(...scores) : 0;
    const exps = scores.map((score) => Math.exp(score - top));
    const sum = Math.fround(exps.reduce((total, value) => Math.fround(total + value), 0));
    values.set(
      exps.map((value) => value / sum),
      i * columns,
    );
  }
  return { values, columns };
}
