// What the pages of mechanisms that choose keys compute, against plain float64 loops written here.
import { type Heed, load } from "heed";
import { beforeAll, expect, test } from "vitest";
import { mixture } from "../../web/src/mechanisms/block_mixture/blocks.js";
import {
  type Choosing,
  exactWeights,
  keptBy,
  keptByAll,
  weightsOf,
} from "../../web/src/mechanisms/block_mixture/selected.js";
import { DIM, K, Q, TOKENS } from "../../web/src/mechanisms/block_mixture/text.js";
import { heavyHitter } from "../../web/src/mechanisms/heavy_hitter/cache.js";
import { indexed, indexer } from "../../web/src/mechanisms/indexed/index_scores.js";
import { nativeSparse } from "../../web/src/mechanisms/native_sparse/branches.js";
import { quest } from "../../web/src/mechanisms/quest/pages.js";
import { CLUSTERS, centroidsOf, routing } from "../../web/src/mechanisms/routing/clusters.js";
import { streaming } from "../../web/src/mechanisms/streaming/stream.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load();
});

const row = (all: ArrayLike<number>, at: number, width = DIM): number[] =>
  Array.from({ length: width }, (_, d) => all[at * width + d] as number);
const q = (i: number) => row(Q.data, i);
const k = (j: number) => row(K.data, j);
const dot = (a: readonly number[], b: readonly number[]) =>
  a.reduce((sum, value, d) => sum + value * (b[d] as number), 0);

/** Softmax of q·k / √d over the keys that are read. */
function softmaxOver(query: number, keys: readonly number[]): number[] {
  const exps = keys.map((key) => Math.exp(dot(q(query), k(key)) / Math.sqrt(DIM)));
  const sum = exps.reduce((total, value) => total + value, 0);
  const weights = new Array<number>(TOKENS).fill(0);
  for (const [at, key] of keys.entries()) weights[key] = (exps[at] as number) / sum;
  return weights;
}

const upTo = (count: number) => Array.from({ length: count }, (_, at) => at);
const best = (scores: readonly number[], count: number, certain: readonly number[] = []) =>
  upTo(scores.length)
    .sort(
      (a, b) =>
        Number(certain.includes(b)) - Number(certain.includes(a)) ||
        (scores[b] as number) - (scores[a] as number),
    )
    .slice(0, count);

function expectWeights(choosing: Choosing, budget: number, keysOf: (query: number) => number[]) {
  const weights = weightsOf(choosing.call(heed, budget));
  for (let query = 0; query < TOKENS; query++) {
    const wanted = softmaxOver(query, keysOf(query));
    for (const [key, weight] of wanted.entries()) {
      const own = weights[query * TOKENS + key] as number;
      expect(Math.abs(own - weight), `query ${query}, key ${key}`).toBeLessThan(1e-5);
      expect(own === 0, `query ${query}, key ${key}`).toBe(weight === 0);
    }
  }
  return weights;
}

/** The keys of blocks of `size`, up to the query. */
const keysOfBlocks = (blocks: readonly number[], size: number, query: number) =>
  blocks.flatMap((n) => upTo(size).map((at) => n * size + at)).filter((key) => key <= query);

const scoresOf = (choosing: Choosing, weights: Float32Array, query: number) =>
  choosing.groups?.(heed, weights, query) ?? [];

test("AMixtureReadsTheBlocksWhoseMeanKeyFitsBestAndItsOwn", () => {
  for (const [size, budget] of [
    [4, 4],
    [16, 2],
  ] as const) {
    const choosing = mixture(size);
    const meanScore = (query: number, n: number) =>
      upTo(size).reduce((sum, at) => sum + dot(q(query), k(n * size + at)) / size, 0);
    const scores = (query: number) =>
      upTo(Math.floor(query / size) + 1).map((n) => meanScore(query, n));
    const weights = expectWeights(choosing, budget, (query) => {
      const own = Math.floor(query / size);
      return keysOfBlocks(best(scores(query), budget, [own]), size, query);
    });
    const groups = scoresOf(choosing, weights, 50);
    expect(groups).toHaveLength(Math.floor(50 / size) + 1);
    for (const [n, { score }] of groups.entries()) expect(score).toBeCloseTo(meanScore(50, n), 4);
  }
});

test("QuestReadsThePagesOfTheHighestBoundsAndNoBoundIsBroken", () => {
  const [size, budget] = [4, 3];
  const choosing = quest(size);
  const bound = (query: number, n: number) =>
    q(query).reduce((sum, value, d) => {
      const all = upTo(size).map((at) => k(n * size + at)[d] as number);
      return sum + value * (value > 0 ? Math.max(...all) : Math.min(...all));
    }, 0);
  const bounds = (query: number) => upTo(Math.floor(query / size) + 1).map((n) => bound(query, n));
  const weights = expectWeights(choosing, budget, (query) =>
    keysOfBlocks(best(bounds(query), budget, [Math.floor(query / size)]), size, query),
  );
  for (const query of [20, 50, 63]) {
    const groups = scoresOf(choosing, weights, query);
    expect(groups).toHaveLength(Math.floor(query / size) + 1);
    for (const [n, { score, actual }] of groups.entries()) {
      expect(score).toBeCloseTo(bound(query, n), 4);
      expect(actual).toBeLessThanOrEqual(score + 1e-4);
    }
  }
});

test("TheIndexerRatesAndItsBestKeysAreRead", () => {
  const dim = 8;
  const choosing = indexed(dim);
  const own = indexer(dim);
  const rating = (query: number, key: number) =>
    [0, 1].reduce((sum, head) => {
      const product = dot(row(own.q, head * TOKENS + query, dim), row(own.k, key, dim));
      return sum + (own.weights[head * TOKENS + query] as number) * Math.max(0, product);
    }, 0);
  // Where ratings are 0 for more keys than are read, the earlier keys come first.
  const weights = expectWeights(choosing, 12, (query) =>
    best(
      upTo(query + 1).map((key) => rating(query, key)),
      12,
    ),
  );
  const groups = scoresOf(choosing, weights, 50);
  expect(groups).toHaveLength(51);
  for (const [key, { score }] of groups.entries()) {
    expect(score).toBeCloseTo(rating(50, key), 4);
  }
});

test("StreamingReadsTheFirstAndTheLastTokens", () => {
  expectWeights(streaming(2), 6, (query) =>
    upTo(query + 1).filter((key) => key < 2 || key > query - 6),
  );
});

test("ACacheOfHeavyHittersKeepsWhatWasLookedAtMost", () => {
  const [recent, heavy] = [6, 6];
  const choosing = heavyHitter(recent);
  const received = new Map<number, number>();
  const rows = upTo(TOKENS).map((query) => {
    const older = [...received.keys()].filter((key) => key < query - (recent - 1));
    older.sort((a, b) => (received.get(b) as number) - (received.get(a) as number));
    for (const key of older.slice(heavy)) received.delete(key);
    received.set(query, 0);
    const keys = [...received.keys()];
    const weights = softmaxOver(query, keys);
    for (const key of keys) received.set(key, (received.get(key) as number) + (weights[key] ?? 0));
    return keys;
  });
  const weights = expectWeights(choosing, heavy, (query) => rows[query] as number[]);
  const last = scoresOf(choosing, weights, TOKENS - 1);
  expect(last).toHaveLength(TOKENS - 1);
  const sum = (key: number) =>
    upTo(TOKENS - 1).reduce(
      (total, i) => total + (softmaxOver(i, rows[i] as number[])[key] ?? 0),
      0,
    );
  for (const key of [0, 9, 31]) expect(last[key]?.score).toBeCloseTo(sum(key), 3);
});

test("NativeSparseAttentionChoosesTheBlocksOfTheHeaviestSummaries", () => {
  const size = 4;
  const summaries = (query: number) => {
    const count = Math.floor((query + 1) / size);
    const scores = upTo(count).map((n) =>
      upTo(size).reduce((sum, at) => sum + dot(q(query), k(n * size + at)) / size, 0),
    );
    const exps = scores.map((score) => Math.exp(score / Math.sqrt(DIM)));
    const total = exps.reduce((sum, value) => sum + value, 0);
    return upTo(Math.floor(query / size) + 1).map((n) => (exps[n] ?? 0) / total);
  };
  const chosen = nativeSparse("selected", 8);
  const weights = expectWeights(chosen, 4, (query) => {
    const own = Math.floor(query / size);
    return keysOfBlocks(best(summaries(query), 4, [0, own]), size, query);
  });
  const groups = scoresOf(chosen, weights, 50);
  expect(groups).toHaveLength(Math.floor(50 / size) + 1);
  for (const [n, { score }] of groups.entries()) {
    expect(score).toBeCloseTo(summaries(50)[n] as number, 5);
  }
  expectWeights(nativeSparse("window", 5), 4, (query) =>
    upTo(query + 1).filter((key) => key > query - 5),
  );
  // All three alike: a third of each.
  const parts = (["compressed", "selected", "window"] as const).map((branch) =>
    weightsOf(nativeSparse(branch, 5).call(heed, 4)),
  );
  const all = weightsOf(nativeSparse("all", 5).call(heed, 4));
  for (const at of upTo(TOKENS * TOKENS)) {
    const third = parts.reduce((sum, part) => sum + (part[at] as number) / 3, 0);
    expect(Math.abs((all[at] as number) - third)).toBeLessThan(1e-6);
  }
});

test("RoutedQueriesAverageWhatTheirClustersGive", () => {
  const size = 24;
  for (const learned of [true, false]) {
    const centroids = centroidsOf(learned);
    const members = (of: (token: number) => number[], c: number) =>
      best(
        upTo(TOKENS).map((token) => dot(row(centroids, c), of(token)) / Math.hypot(...of(token))),
        size,
      );
    const weights = weightsOf(routing(learned, size).call(heed, size));
    for (const query of upTo(TOKENS)) {
      const rows = upTo(CLUSTERS).flatMap((c) => {
        const keys = members(k, c).filter((key) => key <= query);
        return members(q, c).includes(query) && keys.length > 0 ? [softmaxOver(query, keys)] : [];
      });
      for (const key of upTo(TOKENS)) {
        const sum = rows.reduce((total, own) => total + (own[key] as number), 0);
        const wanted = sum / Math.max(1, rows.length);
        expect(Math.abs((weights[query * TOKENS + key] as number) - wanted)).toBeLessThan(1e-5);
      }
    }
  }
});

test("KeysAreAsNearAsToTheNearestClusterOfTheQuery", () => {
  const unit = (all: readonly number[]) => all.map((value) => value / Math.hypot(...all));
  const seen = { none: 0, negative: 0 };
  for (const learned of [true, false]) {
    for (const size of [4, 24]) {
      const choosing = routing(learned, size);
      const centroids = upTo(CLUSTERS).map((c) => row(centroidsOf(learned), c));
      const takes = (centroid: readonly number[], query: number) =>
        best(
          upTo(TOKENS).map((token) => dot(centroid, unit(q(token)))),
          size,
        ).includes(query);
      const weights = weightsOf(choosing.call(heed, size));
      for (const query of [0, 20, 40, 50, 63]) {
        const own = centroids.filter((centroid) => takes(centroid, query));
        const groups = scoresOf(choosing, weights, query);
        expect(groups).toHaveLength(own.length === 0 ? 0 : query + 1);
        seen.none += Number(own.length === 0);
        for (const [key, { from, to, score }] of groups.entries()) {
          expect([from, to]).toEqual([key, key + 1]);
          const near = Math.max(...own.map((centroid) => dot(unit(centroid), unit(k(key)))));
          expect(score).toBeCloseTo(near, 4);
          seen.negative += Number(near < 0);
        }
      }
    }
  }
  expect(seen.none).toBeGreaterThan(0);
  expect(seen.negative).toBeGreaterThan(0);
});

test("WhatIsKeptIsTheExactWeightOfTheKeysThatAreRead", () => {
  const exact = exactWeights(heed);
  const weights = weightsOf(streaming(1).call(heed, 12));
  const truth = softmaxOver(50, upTo(51));
  const read = upTo(51).filter((key) => key === 0 || key > 38);
  const kept = keptBy(exact, weights, 50);
  expect(kept.keys).toBe(read.length);
  expect(kept.share).toBeCloseTo(
    read.reduce((sum, key) => sum + (truth[key] as number), 0),
    5,
  );
  const sorted = [...truth].sort((a, b) => b - a).slice(0, read.length);
  expect(kept.best).toBeCloseTo(
    sorted.reduce((sum, weight) => sum + weight, 0),
    5,
  );
  // Everything is kept when everything is read, and a larger budget keeps no less.
  const shares = streaming(1).budgets.map(
    (budget) => keptByAll(exact, weightsOf(streaming(1).call(heed, budget))).share,
  );
  expect(shares.at(-1)).toBeCloseTo(1, 5);
  expect(shares).toEqual([...shares].sort((a, b) => a - b));
});
