// What the pages of layers and blocks compute, against plain float64 loops written here.
import { type Heed, load } from "heed";
import { beforeAll, expect, test } from "vitest";
import { disagreement } from "../../web/src/lib/call.js";
import {
  HEAD_DIM,
  MODEL_DIM,
  PROJECTIONS,
  projectTokens,
  tokenVectors,
} from "../../web/src/lib/vectors.js";
import {
  CLASS_SIZE,
  classified,
  drowned,
  embeddingOf,
  MOST_FILLERS,
  POOL_QUERY,
  POOLINGS,
  SHARPNESS,
  textOf,
} from "../../web/src/mechanisms/attention_classifier/topics.js";
import { K, Q, DIM as TEXT_DIM, TOKENS } from "../../web/src/mechanisms/block_mixture/text.js";
import { inducedSet, RESTING as POINTS } from "../../web/src/mechanisms/induced_set/points.js";
import { errorOf, exactWeights, segmentMeans } from "../../web/src/mechanisms/linformer/ranked.js";
import {
  COUNT,
  lengthOf as lengthOfRow,
  NUM_HEADS,
  OUT,
  parts,
  W_O,
  WORDS,
} from "../../web/src/mechanisms/multi_head/parts.js";
import {
  GAIN,
  LATENTS,
  MOST_LATENTS,
  DIM as PIXEL_DIM,
  pixels,
  reading,
  W_DOWN,
  W_UP,
} from "../../web/src/mechanisms/perceiver/reading.js";
import {
  BLOCKS,
  FIRST,
  lengthOf,
  likeness,
  ORDERS,
  type Setting,
  DIM as STREAM_DIM,
  stack,
  weightsOf,
} from "../../web/src/mechanisms/transformer_block/stack.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

type Rows = number[][];

const rowsOf = (all: ArrayLike<number>, width: number): Rows =>
  Array.from({ length: all.length / width }, (_, i) =>
    Array.from({ length: width }, (_, at) => all[i * width + at] as number),
  );
const dot = (a: readonly number[], b: readonly number[]) =>
  a.reduce((sum, value, at) => sum + value * (b[at] as number), 0);
function softmax(scores: readonly number[]): number[] {
  const most = Math.max(...scores);
  const exps = scores.map((score) => Math.exp(score - most));
  const sum = exps.reduce((total, value) => total + value, 0);
  return exps.map((value) => value / sum);
}
/** Rows of weights times rows of values. */
const times = (weights: Rows, values: Rows): Rows =>
  weights.map((row) =>
    (values[0] as number[]).map((_, d) =>
      row.reduce((sum, weight, j) => sum + weight * (values[j]?.[d] as number), 0),
    ),
  );
/** x W^T for a matrix of rows. */
const linear = (x: Rows, matrix: Rows): Rows => x.map((row) => matrix.map((w) => dot(row, w)));
const plus = (a: Rows, b: Rows): Rows =>
  a.map((row, i) => row.map((value, d) => value + (b[i]?.[d] as number)));
const normed = (x: Rows): Rows =>
  x.map((row) => {
    const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length;
    return row.map((value) => (value - mean) / Math.sqrt(variance + 1e-5));
  });
function close(values: ArrayLike<number>, wanted: Rows, tolerance = 1e-5) {
  expect(values.length).toBe(wanted.flat().length);
  let largest = 0;
  wanted.flat().forEach((value, at) => {
    const apart = Math.abs((values[at] as number) - value);
    largest = apart <= largest ? largest : apart;
  });
  expect(largest).toBeLessThan(tolerance);
}
/** The error function, by Abramowitz and Stegun 7.1.26: within 1.5e-7. */
function erf(x: number): number {
  const u = 1 / (1 + 0.3275911 * Math.abs(x));
  const series =
    u *
    (0.254829592 + u * (-0.284496736 + u * (1.421413741 + u * (-1.453152027 + u * 1.061405429))));
  return Math.sign(x) * (1 - series * Math.exp(-x * x));
}
const gelu = (x: number) => 0.5 * x * (1 + erf(x / Math.SQRT2));

test("induced set: members read points that have read the members", () => {
  const [q, k] = [rowsOf(Q.data, TEXT_DIM), rowsOf(K.data, TEXT_DIM)];
  const attend = (from: Rows, to: Rows) =>
    from.map((row) => softmax(to.map((other) => dot(row, other) / Math.sqrt(TEXT_DIM))));
  for (const [count, offer] of [
    [POINTS.count, POINTS.offer],
    [1, 0],
    [5, 4],
  ] as const) {
    const set = inducedSet(offer);
    const means = rowsOf(segmentMeans(count), TOKENS);
    const asked = times(means, q);
    const offered = times(means, k).map((row) => row.map((x) => offer * x));
    const first = attend(asked, k);
    close(set.parts(heed, count), first);
    const called = set.call(heed, count);
    close(set.weights?.(called) ?? [], times(attend(q, offered), first));
  }
});

test("induced set: more points stand for weights that are nearer to the exact ones", () => {
  const set = inducedSet(POINTS.offer);
  const exact = exactWeights(heed);
  const errors = [1, 4, 16, 32].map((count) =>
    errorOf(exact, set.weights?.(set.call(heed, count)) ?? new Float32Array()),
  );
  expect(errors.toSorted((a, b) => b - a)).toEqual(errors);
  expect(errors[3]).toBeGreaterThan(0.1);
});

test("perceiver: latents' weights over the pixels, and the whole block", () => {
  for (const [side, count] of [
    [8, MOST_LATENTS],
    [16, 6],
  ] as const) {
    const latents = LATENTS.slice(0, count).map((row) => [...row]);
    const [from, to] = [normed(latents), normed(pixels(side).rows)];
    const weights = from.map((row) =>
      softmax(to.map((other) => (GAIN * dot(row, other)) / Math.sqrt(PIXEL_DIM))),
    );
    const result = reading(heed, side, count);
    close(result.weights, weights);
    const z = plus(latents, times(weights, to));
    const hidden = linear(normed(z), rowsOf(W_UP.data, PIXEL_DIM)).map((row) => row.map(gelu));
    const output = plus(z, linear(hidden, rowsOf(W_DOWN.data, W_UP.data.length / PIXEL_DIM)));
    close(result.called.results.output?.data ?? [], output, 1e-4);
  }
});

test("multi-head: every head's weights, and its slice of the joining projection", () => {
  const x = rowsOf(tokenVectors(WORDS), MODEL_DIM);
  const { q, k } = projectTokens(WORDS);
  const project = (matrix: Float32Array): Rows => {
    const columns = rowsOf(matrix, HEAD_DIM);
    return x.map((row) =>
      Array.from({ length: HEAD_DIM }, (_, d) =>
        row.reduce((sum, value, m) => sum + value * (columns[m]?.[d] as number), 0),
      ),
    );
  };
  for (const factors of [
    [1, 1, 1, 1],
    [0, 0.5, 0.25, 1],
  ]) {
    const result = parts(heed, factors);
    let total: Rows = x.map(() => Array.from({ length: OUT }, () => 0));
    for (let head = 0; head < NUM_HEADS; head++) {
      const of = (all: Float32Array) =>
        rowsOf(all.subarray(head * COUNT * HEAD_DIM, (head + 1) * COUNT * HEAD_DIM), HEAD_DIM);
      const weights = of(q).map((row) =>
        softmax(of(k).map((other) => dot(row, other) / Math.sqrt(HEAD_DIM))),
      );
      close(result.weights[head] ?? [], weights);
      const slice = rowsOf(W_O.data, NUM_HEADS * HEAD_DIM).map((row) =>
        row.slice(head * HEAD_DIM, (head + 1) * HEAD_DIM),
      );
      const values = project(PROJECTIONS[head]?.value as Float32Array);
      const added = linear(times(weights, values), slice).map((row) =>
        row.map((value) => value * (factors[head] as number)),
      );
      close(result.added[head] ?? [], added);
      total = plus(total, added);
    }
    close(result.output, total);
    expect(lengthOfRow(result.output, 8)).toBeCloseTo(Math.hypot(...(total[8] ?? [])), 4);
  }
});

/** One block, with what its two steps add, by loops. */
function blockOf(x: Rows, block: number, { order, gain }: Setting) {
  const weights = weightsOf(block, gain);
  const inner = STREAM_DIM / 2;
  const attend = (from: Rows): Rows => {
    const heads = [0, 1].map((head) => {
      const own = ({ data }: { data: ArrayLike<number> }) =>
        linear(from, rowsOf(data, STREAM_DIM).slice(head * inner, (head + 1) * inner));
      const [q, k, v] = [own(weights.wQ), own(weights.wK), own(weights.wV)];
      const map = q.map((row) => softmax(k.map((other) => dot(row, other) / Math.sqrt(inner))));
      return times(map, v);
    });
    const joined = from.map((_, i) => heads.flatMap((head) => head[i] as number[]));
    return linear(joined, rowsOf(weights.wO.data, STREAM_DIM));
  };
  const feed = (from: Rows): Rows =>
    linear(
      linear(from, rowsOf(weights.wUp.data, STREAM_DIM)).map((row) => row.map(gelu)),
      rowsOf(weights.wDown.data, 2 * STREAM_DIM),
    );
  if (order === "pre") {
    const attention = attend(normed(x));
    const between = plus(x, attention);
    const network = feed(normed(between));
    return { attention, network, after: plus(between, network) };
  }
  const attention = attend(x);
  const between = normed(plus(x, attention));
  const network = feed(between);
  return { attention, network, after: normed(plus(between, network)) };
}

test("transformer block: what attention and network add to the stream, in both orders", () => {
  for (const order of ORDERS) {
    for (const gain of [0, 1, 2]) {
      let x = rowsOf(FIRST, STREAM_DIM);
      const { steps } = stack(heed, { order, gain });
      expect(steps).toHaveLength(BLOCKS);
      // A few blocks: float32 and float64 drift apart in a deep stack.
      for (const [at, step] of steps.slice(0, 3).entries()) {
        const wanted = blockOf(x, at, { order, gain });
        close(step.attention, wanted.attention, 2e-4);
        close(step.network, wanted.network, 2e-4);
        close(step.after, wanted.after, 2e-4);
        x = rowsOf(step.after, STREAM_DIM);
      }
    }
  }
});

test("transformer block: the stream grows, keeps its length, or is not touched", () => {
  const lengths = (setting: Setting) =>
    stack(heed, setting).steps.map(({ after }) => lengthOf(after));
  const before = lengths({ order: "pre", gain: 1 });
  expect(before.toSorted((a, b) => a - b)).toEqual(before);
  for (const length of lengths({ order: "post", gain: 1 }))
    expect(length).toBeCloseTo(Math.sqrt(STREAM_DIM), 3);
  const idle = stack(heed, { order: "pre", gain: 0 }).steps.at(-1)?.after ?? new Float32Array();
  expect(idle).toEqual(FIRST);
  expect(likeness(FIRST, idle)).toBeCloseTo(1, 6);
  const negative = FIRST.map((x) => -x);
  expect(likeness(FIRST, negative)).toBeCloseTo(-1, 6);
});

test("classifier: attention, four ways to pool, and the softmax of two classes", async () => {
  for (const [sentence, fillers] of [
    [0, 6],
    [1, 0],
    [2, MOST_FILLERS],
  ] as const) {
    const x = textOf(sentence, fillers).map(embeddingOf);
    const topics = ([fish = 0, music = 0]: number[]) => [fish, music];
    const weights = x.map((row) =>
      softmax(x.map((other) => SHARPNESS * dot(topics(row), topics(other)))),
    );
    const h = times(weights, x);
    const asked = softmax(h.map((row) => dot(row, POOL_QUERY)));
    const shares = {
      attention: asked,
      mean: h.map(() => 1 / h.length),
      max: null,
      first: h.map((_, at) => Number(at === 0)),
    };
    for (const pooling of POOLINGS) {
      const result = classified(heed, sentence, fillers, pooling);
      close(result.weights, weights);
      const share = shares[pooling];
      if (share) close(result.pooled ?? [], [share]);
      else expect(result.pooled).toBeNull();
      const [fish = 0, music = 0] = share
        ? (times([share], h)[0] as number[])
        : [0, 1].map((d) => Math.max(...h.map((row) => row[d] as number)));
      const [, wanted = 0] = softmax([CLASS_SIZE * fish, CLASS_SIZE * music]);
      expect(result.music).toBeCloseTo(wanted, 5);
      expect(drowned(heed, sentence, pooling)[fillers]).toBeCloseTo(wanted, 5);
      expect(await disagreement(heed, result.called)).toBeLessThan(2e-6);
    }
  }
});

test("classifier: idle words drown a mean, and hardly change pooling by attention", () => {
  const fall = (pooling: "mean" | "attention") => {
    const curve = drowned(heed, 0, pooling);
    return (curve[0] as number) - (curve[MOST_FILLERS] as number);
  };
  expect(fall("mean")).toBeGreaterThan(0.2);
  expect(fall("attention")).toBeLessThan(0.05);
});
