import { HeedError } from "./errors.js";
import type { Heed } from "./heed.js";

const Q = [
  [1, 0],
  [0, 1],
];
const K = [
  [1, 0],
  [1, 1],
  [0, 1],
];
const V = [
  [1, 0],
  [0, 2],
  [1, 1],
];

/** Attention of the three matrices above in float64, straight from the formula. */
function expected(causalOffset: number): number[] {
  return Q.flatMap((q, i) => {
    const keys = K.map((k, j) => ({ k, v: V[j] as number[] })).slice(0, i + causalOffset + 1);
    const terms = keys.map(({ k, v }) => {
      const dot = (q[0] as number) * (k[0] as number) + (q[1] as number) * (k[1] as number);
      return { weight: Math.exp(dot / Math.SQRT2), v };
    });
    const sum = terms.reduce((total, { weight }) => total + weight, 0);
    return [0, 1].map((d) =>
      terms.reduce((total, { weight, v }) => total + (weight * (v[d] as number)) / sum, 0),
    );
  });
}

function check(name: string, got: ArrayLike<number>, wanted: number[]): void {
  const good = wanted.every((value, i) => Math.abs((got[i] ?? Number.NaN) - value) < 1e-5);
  if (!good || got.length !== wanted.length) {
    throw new HeedError(
      "unsupported",
      `heed: the self-test of ${name} gave [${Array.from(got).join(", ")}] instead of [${wanted.join(", ")}]; this engine validates SIMD but computes it wrong`,
    );
  }
}

/** Some engines accept SIMD modules and compute them wrong: better a clear error than wrong numbers. */
export function selfTest(heed: Heed): void {
  check("attention", heed.attention(Q, K, V).output.data, expected(2));
  const causal = heed.attention(Q, K, V, { causal: true, queryOffset: 0 });
  check("causal attention", causal.output.data, expected(0));
}
