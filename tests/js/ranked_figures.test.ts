// What the pages of mechanisms with compressed keys compute, against plain float64 loops written here.
import { type Heed, load } from "heed";
import { beforeAll, expect, test } from "vitest";
import { DIM, K, Q, TOKENS } from "../../web/src/mechanisms/block_mixture/text.js";
import { efficient } from "../../web/src/mechanisms/efficient/channels.js";
import { linformer } from "../../web/src/mechanisms/linformer/mixtures.js";
import {
  bestErrors,
  errorOf,
  exactWeights,
  impliedWeights,
  type Ranked,
  segmentMeans,
  singularValues,
} from "../../web/src/mechanisms/linformer/ranked.js";
import { memoryCompressed } from "../../web/src/mechanisms/memory_compressed/strides.js";
import { nystrom, residualOf } from "../../web/src/mechanisms/nystrom/landmarks.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load();
});

const upTo = (count: number) => Array.from({ length: count }, (_, at) => at);
const row = (all: ArrayLike<number>, at: number, width: number): number[] =>
  upTo(width).map((d) => all[at * width + d] as number);
const dot = (a: readonly number[], b: readonly number[]) =>
  a.reduce((sum, value, d) => sum + value * (b[d] as number), 0);
const q = (i: number) => row(Q.data, i, DIM);
const k = (j: number) => row(K.data, j, DIM);

function softmax(scores: readonly number[]): number[] {
  const top = Math.max(...scores);
  const exps = scores.map((score) => Math.exp(score - top));
  const sum = exps.reduce((total, value) => total + value, 0);
  return exps.map((value) => value / sum);
}

/** Softmax over the compressed keys, each weight spread over what its key is made of. */
function throughParts(parts: Float32Array): number[] {
  const count = parts.length / TOKENS;
  const keys = upTo(count).map((n) =>
    upTo(DIM).map((d) =>
      dot(
        row(parts, n, TOKENS),
        upTo(TOKENS).map((j) => k(j)[d] as number),
      ),
    ),
  );
  return upTo(TOKENS).flatMap((i) => {
    const weights = softmax(keys.map((key) => dot(q(i), key) / Math.sqrt(DIM)));
    return upTo(TOKENS).map((j) =>
      weights.reduce((sum, weight, n) => sum + weight * (parts[n * TOKENS + j] as number), 0),
    );
  });
}

function expectWeights(ranked: Ranked, size: number, wanted: readonly number[]) {
  const own = impliedWeights(ranked.call(heed, size));
  expect(own).toHaveLength(wanted.length);
  for (const [at, value] of wanted.entries()) {
    expect(Math.abs((own[at] as number) - value), `number ${at}`).toBeLessThan(2e-5);
  }
}

test("CompressedKeysStandForTheWeightsOfWhatTheyAreMadeOf", () => {
  for (const [ranked, size] of [
    [linformer("means"), 12],
    [linformer("random"), 5],
    [memoryCompressed, 5],
  ] as const) {
    const parts = ranked.parts(heed, size);
    expect(parts).toHaveLength(ranked.keys(size) * TOKENS);
    expectWeights(ranked, size, throughParts(parts));
  }
});

test("EfficientAttentionMixesOneSoftmaxAChannel", () => {
  const [channels, factor] = [6, 1.5];
  const cut = (values: readonly number[]) => values.slice(0, channels).map((x) => factor * x);
  const summaries = upTo(channels).map((c) =>
    softmax(upTo(TOKENS).map((j) => cut(k(j))[c] as number)),
  );
  const ranked = efficient(factor);
  const parts = ranked.parts(heed, channels);
  for (const [c, summary] of summaries.entries()) {
    for (const j of upTo(TOKENS)) {
      expect(parts[c * TOKENS + j]).toBeCloseTo(summary[j] as number, 5);
    }
  }
  const wanted = upTo(TOKENS).flatMap((i) => {
    const shares = softmax(cut(q(i)));
    return upTo(TOKENS).map((j) =>
      shares.reduce((sum, share, c) => sum + share * (summaries[c]?.[j] as number), 0),
    );
  });
  expectWeights(ranked, channels, wanted);
});

type Rows = number[][];
const product = (a: Rows, b: Rows): Rows =>
  a.map((x) =>
    (b[0] as number[]).map((_, j) => x.reduce((sum, v, t) => sum + v * (b[t]?.[j] as number), 0)),
  );
/** diagonal - a */
const minus = (diagonal: number, a: Rows): Rows =>
  a.map((x, i) => x.map((v, j) => (i === j ? diagonal : 0) - v));
const turned = (a: Rows): Rows => (a[0] as number[]).map((_, j) => a.map((x) => x[j] as number));

/** The iterations of the paper (equation 14) from the transpose over its largest sums. */
function pseudoInverse(a: Rows, iterations: number): Rows {
  const most = (of: Rows) => Math.max(...of.map((x) => x.reduce((sum, v) => sum + Math.abs(v), 0)));
  const size = most(a) * most(turned(a));
  let z = turned(a).map((x) => x.map((v) => v / size));
  for (let n = 0; n < iterations; n++) {
    const az = product(a, z);
    const inner = product(az, minus(15, product(az, minus(7, az))));
    z = product(z, minus(13, inner)).map((x) => x.map((v) => v / 4));
  }
  return z;
}

test("LandmarksStandForTheMatrixThroughThePseudoInverse", () => {
  const weightsOf = (queries: Rows, keys: Rows) =>
    queries.map((x) => softmax(keys.map((y) => dot(x, y) / Math.sqrt(DIM))));
  for (const [count, iterations] of [
    [1, 6],
    [5, 2],
    [12, 6],
  ] as const) {
    const means = (of: (token: number) => number[]) =>
      upTo(count).map((n) => {
        const [from, to] = [n, n + 1].map((at) => Math.floor((at * TOKENS) / count)) as [
          number,
          number,
        ];
        return upTo(DIM).map((d) =>
          upTo(to - from).reduce((sum, at) => sum + (of(from + at)[d] as number) / (to - from), 0),
        );
      });
    const [queries, keys] = [upTo(TOKENS).map(q), upTo(TOKENS).map(k)];
    const middle = pseudoInverse(weightsOf(means(q), means(k)), iterations);
    const wanted = product(
      product(weightsOf(queries, means(k)), middle),
      weightsOf(means(q), keys),
    );
    expectWeights(nystrom(iterations), count, wanted.flat());
  }
});

test("MoreIterationsComeNearerToThePseudoInverse", () => {
  const residuals = [1, 4, 8].map((iterations) => residualOf(heed, 12, iterations));
  expect(residuals).toEqual([...residuals].sort((a, b) => b - a));
  expect(residuals.at(-1)).toBeLessThan(1e-3);
  expect([...nystrom(6).parts(heed, 12)]).toEqual([...segmentMeans(12)]);
});

test("SingularValuesAreThoseOfKnownMatrices", () => {
  const turned = [0.6, -0.8, 0.8, 0.6].map((value, at) => value * (at % 2 === 0 ? 3 : 2));
  const [first, second] = singularValues(turned, 2);
  expect(first).toBeCloseTo(3, 10);
  expect(second).toBeCloseTo(2, 10);
  const exact = exactWeights(heed);
  const values = singularValues(exact, TOKENS);
  const squares = exact.reduce((sum, value) => sum + value * value, 0);
  expect(values.reduce((sum, value) => sum + value * value, 0)).toBeCloseTo(squares, 8);
  const best = bestErrors(values);
  expect(best[0]).toBeCloseTo(1, 10);
  expect(best.at(-1)).toBe(0);
});

test("NoMechanismIsNearerThanTheBestMatrixOfItsRank", () => {
  const exact = exactWeights(heed);
  const best = bestErrors(singularValues(exact, TOKENS));
  const all = [linformer("means"), linformer("random"), nystrom(6), memoryCompressed, efficient(1)];
  for (const ranked of all) {
    for (const size of ranked.sizes) {
      const error = errorOf(exact, impliedWeights(ranked.call(heed, size)));
      expect(error).toBeGreaterThan((best[ranked.keys(size)] as number) - 1e-4);
    }
    const keys = ranked.sizes.map(ranked.keys);
    expect(keys).toEqual([...keys].sort((a, b) => a - b));
  }
  // A compressed key a token is exact attention.
  expect(errorOf(exact, impliedWeights(memoryCompressed.call(heed, 1)))).toBeLessThan(1e-5);
});
