import fc from "fast-check";
import { type Heed, load } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { type Data, expectClose, largest, MAX_ERROR, random, randomData } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

type Values = Record<string, unknown>;

interface Problem {
  inputs: { q: Data; k: Data; v: Data } & Values;
  params: Values;
}

const sizes = fc.record({
  batch: fc.integer({ min: 1, max: 2 }),
  kvHeads: fc.integer({ min: 1, max: 2 }),
  group: fc.integer({ min: 1, max: 3 }),
  qLen: fc.constantFrom(1, 2, 3, 17, 63, 65),
  kvLen: fc.constantFrom(1, 2, 5, 31, 64, 67, 130),
  headDim: fc.constantFrom(1, 3, 8, 40, 64, 80),
  headDimV: fc.constantFrom(1, 2, 7, 16, 64, 96),
  seed: fc.integer({ min: 1, max: 1e9 }),
});

const switches = fc.record({
  scale: fc.constantFrom(undefined, 0, -0.3, 0.7),
  softcap: fc.constantFrom(undefined, 0.5, 30),
  causal: fc.boolean(),
  window: fc.constantFrom(undefined, { left: 2, right: 0 }, { right: 3 }, { left: 0, right: 0 }),
  offset: fc.constantFrom<"end" | "list" | number>("end", "list", 0, 3, -2),
  keep: fc.constantFrom("none", "matrix", "full", "perKey"),
  bias: fc.constantFrom("none", "matrix", "perHead"),
  lengths: fc.constantFrom("none", "perBatch", "perQuery"),
  sinks: fc.boolean(),
  alibi: fc.boolean(),
  layout: fc.constantFrom("bhld" as const, "blhd" as const),
});

type Sizes = typeof sizes extends fc.Arbitrary<infer T> ? T : never;
type Switches = typeof switches extends fc.Arbitrary<infer T> ? T : never;

function masks(s: Sizes, w: Switches): Values {
  const { batch, qLen, kvLen, seed } = s;
  const heads = s.kvHeads * s.group;
  const next = random(seed + 7);
  const cells = (shape: number[]) => ({
    data: Uint8Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () =>
      next() < 0.4 ? 1 : 0,
    ),
    shape,
  });
  const count = (): number => Math.floor(((next() + 1) / 2) * (kvLen + 1));
  const keepShapes: Record<string, number[]> = {
    matrix: [qLen, kvLen],
    full: [batch, heads, qLen, kvLen],
    perKey: [batch, 1, 1, kvLen],
  };
  const biasShapes: Record<string, number[]> = {
    matrix: [qLen, kvLen],
    perHead: [1, heads, qLen, kvLen],
  };
  const keepShape = keepShapes[w.keep];
  const biasShape = biasShapes[w.bias];
  const lengths = Array.from({ length: batch * qLen }, count);
  return {
    keep: keepShape && cells(keepShape),
    bias: biasShape && withHoles(randomData(biasShape, seed + 5), next),
    keyLengths:
      w.lengths === "none"
        ? undefined
        : w.lengths === "perBatch"
          ? Int32Array.from(lengths.slice(0, batch))
          : { data: Int32Array.from(lengths), shape: [batch, qLen] },
    sinks: w.sinks ? Float32Array.from({ length: heads }, next) : undefined,
    alibiSlopes: w.alibi ? heed.alibiSlopes(heads) : undefined,
  };
}

/** A bias of -Infinity means "not kept": some cells get it. */
function withHoles(bias: Data, next: () => number): Data {
  for (let i = 0; i < bias.data.length; i++) if (next() > 0.8) bias.data[i] = -Infinity;
  return bias;
}

function makeProblem(s: Sizes, w: Switches): Problem {
  const { batch, kvHeads, group, qLen, kvLen, headDim, headDimV, seed } = s;
  const shape = (heads: number, len: number, dim: number): number[] =>
    w.layout === "bhld" ? [batch, heads, len, dim] : [batch, len, heads, dim];
  const list = Array.from({ length: batch }, (_, b) => 2 * b - 1);
  // "end" has no meaning when every query has a length of its own.
  const offset = w.offset === "end" && w.lengths === "perQuery" ? 1 : w.offset;
  return {
    inputs: {
      q: randomData(shape(kvHeads * group, qLen, headDim), seed),
      k: randomData(shape(kvHeads, kvLen, headDim), seed + 1),
      v: randomData(shape(kvHeads, kvLen, headDimV), seed + 2),
      ...masks(s, w),
    },
    params: {
      scale: w.scale,
      softcap: w.softcap,
      causal: w.causal,
      window: w.window,
      queryOffset: offset === "list" ? list : offset,
      layout: w.layout,
    },
  };
}

/** The largest length of a row. */
function longest({ data, shape }: Data): number {
  const width = shape.at(-1) ?? 1;
  let most = 0;
  for (let at = 0; at < data.length; at += width) {
    most = Math.max(most, Math.hypot(...data.subarray(at, at + width)));
  }
  return most;
}

/** MAX_ERROR speaks of logits whose terms sum up to 16, and grows with larger ones. */
function boundOf({ inputs, params }: Problem, { headDim, qLen, kvLen }: Sizes): number {
  const scale = (params.scale as number | undefined) ?? 1 / Math.sqrt(headDim);
  const bias = inputs.bias as Data | undefined;
  const slopes = inputs.alibiSlopes as Float32Array | undefined;
  const farthest = qLen + kvLen + 3; // offsets are at most 3
  const logit =
    Math.abs(scale) * longest(inputs.q) * longest(inputs.k) +
    largest(bias?.data ?? []) +
    largest(slopes ?? []) * farthest;
  return MAX_ERROR * Math.max(1, logit / 16);
}

describe("attention", () => {
  it("matches the float64 reference for random shapes and options", async () => {
    await fc.assert(
      fc.asyncProperty(sizes, switches, async (s, w) => {
        const problem = makeProblem(s, w);
        const { inputs, params } = problem;
        const { q, k, v, ...tensors } = inputs;
        const bound = boundOf(problem, s);
        const asked = { returnLse: true, returnWeights: true } as const;
        const got = heed.attention(q, k, v, { ...tensors, ...params, ...asked });
        const wanted = await heed.reference("scaled_dot_product", inputs, { ...params, ...asked });
        expect(got.output.shape).toEqual(wanted.output.shape);
        expectClose("output", got.output.data, wanted.output.data, bound * largest(v.data));
        expectClose("weights", got.weights.data, wanted.weights?.data ?? [], bound);
        const lse = wanted.lse?.data ?? [];
        expectClose("lse", got.lse.data, lse, bound * (1 + largest(lse)));
      }),
      { numRuns: 250 },
    );
  });

  it.each(["raw", "capped", "biased"] as const)(
    "returns %s scores as the reference does",
    async (stage) => {
      const inputs = {
        q: randomData([2, 4, 9, 24], 1),
        k: randomData([2, 2, 13, 24], 2),
        v: randomData([2, 2, 13, 8], 3),
        bias: randomData([9, 13], 4),
        alibiSlopes: heed.alibiSlopes(4),
      };
      const params = { softcap: 0.7, causal: true, queryOffset: 2, returnScores: stage };
      const { q, k, v, ...options } = inputs;
      const got = heed.attention(q, k, v, { ...options, ...params });
      const wanted = await heed.reference("scaled_dot_product", inputs, params);
      expect(got.scores.shape).toEqual([2, 4, 9, 13]);
      const scores = wanted.scores?.data ?? [];
      expectClose("scores", got.scores.data, scores, MAX_ERROR * (1 + largest(scores)));
    },
  );
});

describe("kernel_regression", () => {
  const KERNELS = ["gaussian", "boxcar", "triangular", "epanechnikov", "constant"];

  it.each(KERNELS)("matches the float64 reference with the %s kernel", async (kernel) => {
    const inputs = {
      q: randomData([1, 2, 11, 3], 1),
      k: randomData([1, 2, 40, 3], 2),
      v: randomData([1, 2, 40, 2], 3),
      keyLengths: [37],
    };
    const params = { kernel, width: [0.4, 0.9, 0.6], returnWeights: true };
    const got = heed.run("kernel_regression", inputs, params);
    const wanted = await heed.reference("kernel_regression", inputs, params);
    expectClose("output", got.output.data, wanted.output.data, MAX_ERROR * largest(inputs.v.data));
    expectClose("weights", got.weights?.data ?? [], wanted.weights?.data ?? [], MAX_ERROR);
  });
});
