// The sum of a softmax, key by key, in float32: of e^s as it stands, and of e^(s - m) with the maximum
// so far.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import { hashText, normalSource } from "../../lib/random.js";

export const COUNT = 48;
const DIM = 4;

function draw(name: string, count: number): Float32Array {
  const normal = normalSource(hashText(`overflow ${name}`));
  return Float32Array.from({ length: count }, normal);
}

export const Q = floats(draw("q", DIM), [1, 1, 1, DIM]);
export const K = floats(draw("k", COUNT * DIM), [1, 1, COUNT, DIM]);
const V = floats(draw("v", COUNT), [1, 1, COUNT, 1]);

export interface Sums {
  called: Called;
  /** What heed's softmax saw, [COUNT]. */
  scores: Float32Array;
  /** The sum of e^s after each key. */
  plain: Float32Array;
  /** The largest score so far, and the sum of e^(s - m), rescaled whenever m rises. */
  max: Float32Array;
  safe: Float32Array;
  /** heed's logarithm of the whole sum. */
  lse: number;
}

export function sums(heed: Heed, scale: number): Sums {
  const inputs = { q: Q, k: K, v: V };
  const params = { scale, returnLse: true, returnScores: "biased" };
  const called = make(heed, { id: "scaled_dot_product", inputs, params });
  const scores = resultOf(called, "scores").data;
  const [plain, max, safe] = [0, 1, 2].map(() => new Float32Array(COUNT)) as [
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  let [total, top, sum] = [0, -Infinity, 0];
  for (const [key, score] of scores.entries()) {
    total = Math.fround(total + Math.fround(Math.exp(score)));
    const next = Math.max(top, score);
    sum = Math.fround(
      Math.fround(sum * Math.fround(Math.exp(top - next))) + Math.fround(Math.exp(score - next)),
    );
    top = next;
    [plain[key], max[key], safe[key]] = [total, top, sum];
  }
  return { called, scores, plain, max, safe, lse: resultOf(called, "lse").data[0] as number };
}
