// heed.analyze and its kin against float64 loops over the oracle's whole matrix of weights.
import { type Heed, load } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { type Data, expectClose, expectError, MAX_ERROR, randomData } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 2 });
});

const BATCH = 2;
const HEADS = 4;
const LEN = 37;
const KEYS = 43;
const q = randomData([BATCH, HEADS, LEN, 8], 1);
const k = randomData([BATCH, 2, KEYS, 8], 2);
const v = randomData([BATCH, 2, KEYS, 5], 3);
const options = {
  causal: true,
  queryOffset: 3,
  sinks: new Float32Array([0, 1, -1, 0.5]),
  scale: 2,
};
const BOUND = 4 * MAX_ERROR;
/** A gradient of the output. */
const grad = randomData([BATCH, HEADS, LEN, 5], 4);

/** Rows of the oracle's weights, [batch * heads * q_len][kv_len]. */
async function oracleRows(of: Data, keys: Data, more: object = {}): Promise<number[][]> {
  const { sinks, ...params } = options;
  const inputs = {
    q: of,
    k: keys,
    v: { data: new Float32Array(0), shape: [...keys.shape.slice(0, 3), 0] },
  };
  const all = { ...params, ...more, returnWeights: true };
  const { weights } = await heed.reference("attention", { ...inputs, sinks }, all);
  const data = Array.from((weights as { data: Float64Array }).data);
  const len = keys.shape[2] as number;
  return Array.from({ length: data.length / len }, (_, row) =>
    data.slice(row * len, (row + 1) * len),
  );
}

const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);
const plogp = (p: number): number => (p === 0 ? 0 : p * Math.log(p));

describe("analyze", () => {
  it("gives the statistics of every row and key", async () => {
    const rows = await oracleRows(q, k);
    const all = { entropy: true, max: true, expectedDistance: true, columnSums: true } as const;
    const got = heed.analyze(q, k, { ...options, ...all, topWeights: 3, returnLse: true });
    expectClose(
      "entropy",
      got.entropy.data,
      rows.map((row) => -sum(row.map(plogp))),
      5 * BOUND,
    );
    const distances = rows.map((row, n) => sum(row.map((p, j) => p * Math.abs((n % LEN) + 3 - j))));
    expectClose("distance", got.expectedDistance.data, distances, KEYS * BOUND);
    const largest = rows.map((row) => Math.max(...row));
    expectClose("max", got.maxWeight.data, largest, BOUND);
    rows.forEach((row, n) => {
      const index = got.maxIndex.data[n] as number;
      expect(row[index]).toBeGreaterThan((largest[n] as number) - BOUND);
      const top = [...row].sort((a, b) => b - a).slice(0, 3);
      expectClose(`top of row ${n}`, got.topWeights.data.subarray(3 * n, 3 * n + 3), top, BOUND);
    });
    expect(got.topIndices.dtype).toBe("int32");
    expect(got.topIndices.shape).toEqual([BATCH, HEADS, LEN, 3]);
    const columns = Array.from({ length: BATCH * HEADS * KEYS }, (_, n) => {
      const head = Math.floor(n / KEYS);
      return sum(rows.slice(head * LEN, (head + 1) * LEN).map((row) => row[n % KEYS] as number));
    });
    expectClose("columns", got.columnSums.data, columns, LEN * BOUND);
    const { lse } = heed.attention(q, k, v, { ...options, returnLse: true });
    expect(got.lse.data).toEqual(lse.data);
    const again = heed.analyze(q, k, { ...options, lse, entropy: true });
    expectClose("entropy from lse", again.entropy.data, got.entropy.data, 5 * BOUND);
  });

  it("has only the fields that were asked for, and shapes of rank 4", () => {
    const one = heed.analyze(
      [[1, 0]],
      [
        [1, 0],
        [0, 1],
      ],
      { entropy: true, max: false },
    );
    expect(Object.keys(one)).toEqual(["entropy"]);
    expect(one.entropy.shape).toEqual([1, 1, 1]);
    expect("maxWeight" in one).toBe(false);
  });

  it("gives Tensors when it is given one, and loses no memory", () => {
    const resident = heed.tensor(q.data, q.shape);
    const { tensors } = heed.memory();
    const { entropy, topWeights, topIndices } = heed.analyze(resident, k, {
      ...options,
      entropy: true,
      topWeights: 2,
    });
    expect(heed.memory().tensors).toBe(tensors + 3);
    expect(topIndices.data).toBeInstanceOf(Int32Array);
    expect(entropy.data).toEqual(heed.analyze(q, k, { ...options, entropy: true }).entropy.data);
    for (const tensor of [entropy, topWeights, topIndices, resident]) tensor.dispose();
    expect(heed.memory().tensors).toBe(tensors - 1);
  });

  it("works for every score and normaliser of attention", () => {
    const distance = {
      score: "squared_distance",
      normalize: "kernel_sum",
      kernel: "boxcar",
    } as const;
    const { max, ...rest } = { max: true as const, ...distance };
    const near = heed.analyze([[0], [10]], [[0.5], [9.5], [10]], { ...rest, max, queryOffset: 0 });
    expect(Array.from(near.maxWeight.data)).toEqual([1, 0.5]);
    expect(Array.from(near.maxIndex.data)).toEqual([0, 1]);
  });

  it("lists topWeights of the weights that topK of the normaliser leaves", () => {
    const top = { ...options, normalize: "top_k", topK: 2, sinks: undefined } as const;
    const { weights } = heed.attention(q, k, v, { ...top, returnWeights: true });
    const asked = { entropy: true, topWeights: 3 } as const;
    const { entropy, topWeights } = heed.analyze(q, k, { ...top, ...asked });
    const rows = Array.from({ length: entropy.data.length }, (_, n) =>
      Array.from(weights.data.subarray(n * KEYS, (n + 1) * KEYS)).sort((a, b) => b - a),
    );
    expectClose(
      "top",
      topWeights.data,
      rows.flatMap((row) => row.slice(0, 3)),
      BOUND,
    );
    const wanted = rows.map((row) => -sum(row.map(plogp)));
    expectClose("entropy", entropy.data, wanted, 5 * BOUND);
  });

  it.each<[string, string, () => unknown]>([
    ["analyze", "entropy", () => heed.analyze(q, k, {})],
    ["analyze", "topWeights", () => heed.analyze(q, k, { entropy: false })],
    ["headSimilarity", "frobenius", () => heed.headSimilarity(q, k, { cosine: false })],
    ["erasure", "without", () => heed.erasure(q, k, v, { change: false })],
    ["attribution", "pairs", () => heed.attribution(q, k, v, grad, { columnSums: false })],
  ])("%s that is asked for nothing names %s", (name, offered, work) => {
    const before = heed.memory();
    expectError("option", [name, "asked for nothing", offered], work);
    expect(heed.memory()).toEqual(before);
  });

  it("says what is wrong", () => {
    const loose = heed.analyze as (...all: unknown[]) => unknown;
    expectError("range", ["topWeights", "44", "43"], () =>
      loose(q, k, { ...options, topWeights: 44 }),
    );
    expectError("option", ["entropy", "yes"], () => loose(q, k, { ...options, entropy: "yes" }));
    expectError("option", ["returnWeights"], () => loose(q, k, { returnWeights: true }));
    expectError("option", ["entropi"], () => loose(q, k, { entropi: true }));
    expectError("option", ["queryOffset"], () => loose(q, k, { expectedDistance: true }));
    expectError("shape", ["lse"], () => loose(q, k, { ...options, entropy: true, lse: k }));
    expectError("shape", ["k"], () => loose(q, v, { entropy: true }));
    expectError("option", ["lse"], () =>
      loose(q, k, { ...options, lse: randomData([BATCH, HEADS, LEN], 1), returnLse: true }),
    );
  });
});

describe("weightsTile", () => {
  it("is a rectangle of the weights, with and without lse", async () => {
    const rows = await oracleRows(q, k);
    const { lse } = heed.attention(q, k, v, { ...options, returnLse: true });
    const where = { rows: [30, 37], columns: [10, 40] } as const;
    for (const given of [undefined, lse]) {
      const { weights } = heed.weightsTile(q, k, given, { ...options, ...where });
      expect(weights.shape).toEqual([BATCH, HEADS, 7, 30]);
      const wanted = rows.filter((_, n) => n % LEN >= 30).flatMap((row) => row.slice(10, 40));
      expectClose("weights", weights.data, wanted, BOUND);
    }
    expect(heed.weightsTile(q, k, lse, options).weights.shape).toEqual([BATCH, HEADS, LEN, KEYS]);
  });

  it("refuses ranges that are none", () => {
    const loose = heed.weightsTile as (...all: unknown[]) => unknown;
    expectError("range", ["rows", "38"], () =>
      loose(q, k, undefined, { ...options, rows: [0, 38] }),
    );
    expectError("range", ["columns"], () =>
      loose(q, k, undefined, { ...options, columns: [4, 3] }),
    );
    expectError("option", ["rows"], () => loose(q, k, undefined, { ...options, rows: 3 }));
    expectError("option", ["lse", "fourth argument"], () => loose(q, k, { rows: [0, 1] }));
  });
});

describe("headSimilarity", () => {
  it("compares the maps of all pairs", async () => {
    const rows = await oracleRows(q, k);
    const all = { frobenius: true, jensenShannon: true };
    const { cosine, frobenius, jensenShannon } = heed.headSimilarity(q, k, { ...options, ...all });
    expect(cosine?.shape).toEqual([BATCH, HEADS, HEADS]);
    const map = (b: number, h: number) =>
      rows
        .slice((b * HEADS + h) * LEN)
        .slice(0, LEN)
        .flat();
    const dot = (a: number[], b: number[]) => sum(a.map((x, n) => x * (b[n] as number)));
    for (const [b, g, h] of [
      [0, 0, 1],
      [1, 3, 2],
      [0, 2, 2],
    ] as const) {
      const [x, y] = [map(b, g), map(b, h)];
      const at = (b * HEADS + g) * HEADS + h;
      const diverged = x.map((p, n) => {
        const mean = (p + (y[n] as number)) / 2;
        const share = (w: number) => (w === 0 ? 0 : (w * Math.log(w / mean)) / 2);
        return share(p) + share(y[n] as number);
      });
      const far = Math.sqrt(sum(x.map((p, n) => (p - (y[n] as number)) ** 2)));
      const close = dot(x, y) / Math.sqrt(dot(x, x) * dot(y, y));
      expect(Math.abs((cosine?.data[at] as number) - close)).toBeLessThan(BOUND);
      expect(Math.abs((frobenius?.data[at] as number) - far)).toBeLessThan(LEN * BOUND);
      expect(Math.abs((jensenShannon?.data[at] as number) - sum(diverged) / LEN)).toBeLessThan(
        BOUND,
      );
    }
  });
});

describe("rollout, flow and hops", () => {
  const layers = [1, 2].map((seed) => ({
    q: randomData([1, 2, 6, 4], seed),
    k: randomData([1, 2, 6, 4], seed + 10),
    causal: seed === 2,
  }));

  async function mixed(n: number): Promise<number[][]> {
    const layer = layers[n] as (typeof layers)[number];
    const v = { data: new Float32Array(0), shape: [1, 2, 6, 0] };
    const params = { causal: layer.causal, returnWeights: true };
    const { weights } = await heed.reference("attention", { q: layer.q, k: layer.k, v }, params);
    const data = (weights as { data: Float64Array }).data;
    const cell = (i: number, j: number) =>
      ((data[i * 6 + j] as number) + (data[36 + i * 6 + j] as number)) / 4 + (i === j ? 0.5 : 0);
    return Array.from({ length: 6 }, (_, i) => Array.from({ length: 6 }, (_, j) => cell(i, j)));
  }

  const times = (a: number[][], b: number[][]): number[][] =>
    a.map((row) => b.map((_, j) => sum(row.map((x, n) => x * (b[n]?.[j] as number)))));

  it("rollout is the product of the mixed maps, last layer first", async () => {
    const product = times(await mixed(1), await mixed(0));
    const { rows } = heed.rollout(layers);
    expect(rows.shape).toEqual([1, 6, 6]);
    expectClose("rows", rows.data, product.flat(), 4 * BOUND);
    const some = heed.rollout(layers, { tokens: [5, 0] }).rows;
    expectClose("rows", some.data, [product[5], product[0]].flat() as number[], 4 * BOUND);
    const resident = layers.map((layer) => ({
      ...layer,
      q: heed.tensor(layer.q.data, layer.q.shape),
    }));
    const { tensors } = heed.memory();
    const kept = heed.rollout(resident).rows;
    expect(heed.memory().tensors).toBe(tensors + 1);
    expect(kept.data).toEqual(rows.data);
  });

  it("flow by hand", () => {
    const maps = [
      [
        [0.9, 0.1],
        [0.2, 0.8],
      ],
      [
        [0.5, 0.5],
        [1, 0],
      ],
    ];
    const { flow } = heed.attentionFlow(maps);
    expect(flow.shape).toEqual([1, 2, 2]);
    expectClose("flow", flow.data, [0.7, 0.6, 0.9, 0.1], 1e-6);
    expect(heed.attentionFlow(maps, { sources: [1] }).flow.shape).toEqual([1, 1, 2]);
  });

  it("hops are attention again and again", () => {
    const { q, k } = layers[0] as (typeof layers)[number];
    const x = randomData([1, 2, 6, 3], 9);
    const once = heed.attention(q, k, x).output;
    const twice = heed.attention(q, k, once).output;
    expect(heed.multiHop(q, k, x, { hops: 2 }).output.data).toEqual(twice.data);
    expect(heed.multiHop(q, k, x, { hops: 0 }).output.data).toEqual(x.data);
  });

  it("say what is wrong", () => {
    const loose = heed as unknown as Record<string, (...all: unknown[]) => unknown>;
    const { q, k } = layers[0] as (typeof layers)[number];
    expectError("option", ["layers"], () => loose.rollout?.([]));
    expectError("range", ["residual", "2"], () => loose.rollout?.(layers, { residual: 2 }));
    expectError("range", ["tokens[0]", "6"], () => loose.rollout?.(layers, { tokens: [6] }));
    expectError("shape", ["layers[0]"], () =>
      loose.rollout?.([{ q, k: randomData([1, 2, 7, 4], 1) }]),
    );
    const calls = [{ q }, { q, k, v: k }, { q, k, scoreMod: "score +" }, 5];
    for (const layer of calls) {
      expectError("option", ["layers[1]: "], () => loose.rollout?.([{ q, k }, layer]));
    }
    expectError("option", ["layers[0]: unknown name `causale`"], () =>
      loose.rollout?.([{ q, k, causale: true }]),
    );
    const gone = new Int32Array(2);
    structuredClone(gone, { transfer: [gone.buffer] });
    const view = new DataView(new ArrayBuffer(8));
    expectError("option", ["tokens"], () => loose.rollout?.(layers, { tokens: view }));
    expectError("disposed", ["tokens"], () => loose.rollout?.(layers, { tokens: gone }));
    expectError("option", ["sources"], () => loose.attentionFlow?.([[[1]]], { sources: view }));
    expectError("disposed", ["sources"], () => loose.attentionFlow?.([[[1]]], { sources: gone }));
    expectError("option", ["hops"], () => loose.multiHop?.(q, k, q));
    expectError("shape", ["x"], () => loose.multiHop?.(q, k, [[1]], { hops: 1 }));
    expectError("shape", ["maps"], () => loose.attentionFlow?.([[1]]));
    expectError("range", ["-1"], () => loose.attentionFlow?.([[[-1]]]));
  });
});

describe("attribution", () => {
  const dim = v.shape.at(-1) as number;
  const gradOutput = randomData([BATCH, HEADS, LEN, dim], 9);

  it("is the weight times its gradient", () => {
    const { pairs, columnSums } = heed.attribution(q, k, v, gradOutput, {
      ...options,
      pairs: true,
    });
    const { weights } = heed.attention(q, k, v, { ...options, returnWeights: true });
    const group = HEADS / (v.shape[1] as number);
    const sums = new Float64Array(BATCH * HEADS * KEYS);
    for (let row = 0; row < BATCH * HEADS * LEN; row++) {
      const unit = Math.floor(row / LEN);
      for (let j = 0; j < KEYS; j++) {
        const value = (Math.floor(unit / group) * KEYS + j) * dim;
        let along = 0;
        for (let e = 0; e < dim; e++) {
          along += (gradOutput.data[row * dim + e] as number) * (v.data[value + e] as number);
        }
        const term = (weights.data[row * KEYS + j] as number) * along;
        expect(Math.abs((pairs?.data[row * KEYS + j] as number) - term)).toBeLessThan(1e-5);
        sums[unit * KEYS + j] = (sums[unit * KEYS + j] as number) + term;
      }
    }
    expectClose("columnSums", columnSums?.data as Float32Array, sums, 1e-4);
  });

  it("counts what it is asked for", () => {
    const positive = heed.attribution(q, k, v, gradOutput, { ...options, positive: true });
    expect(Object.keys(positive)).toEqual(["columnSums"]);
    expect(Math.min(...(positive.columnSums?.data ?? []))).toBeGreaterThanOrEqual(0);
    const part = heed.attribution(q, k, v, gradOutput, {
      ...options,
      rows: [2, 5],
      columns: [1, 4],
      pairs: true,
      columnSums: false,
    });
    expect(Object.keys(part)).toEqual(["pairs"]);
    expect(part.pairs?.shape).toEqual([BATCH, HEADS, 3, 3]);
  });

  it("refuses what does not fit", () => {
    const wrong = { data: new Float32Array(6), shape: [1, 1, 2, 3] };
    expectError("shape", ["gradOutput"], () => heed.attribution(q, k, v, wrong, options));
    expectError("range", ["rows"], () =>
      heed.attribution(q, k, v, gradOutput, { ...options, rows: [0, LEN + 1] }),
    );
  });
});

describe("erasure and heads", () => {
  it("is attention without the key", async () => {
    const row = 20;
    const without = heed.erasure(q, k, v, { ...options, rows: [row, row + 1], without: true });
    expect(without.change?.shape).toEqual([BATCH, HEADS, 1, KEYS]);
    expect(without.without?.shape).toEqual([BATCH, HEADS, KEYS, 5]);
    const whole = heed.attention(q, k, v, options).output.data;
    for (const j of [0, 7, 23, 24, 42]) {
      const keep = {
        data: Array.from({ length: KEYS }, (_, n) => n !== j),
        shape: [1, 1, 1, KEYS],
      };
      const { output } = heed.attention(q, k, v, { ...options, keep });
      for (let head = 0; head < BATCH * HEADS; head++) {
        const at = (head * LEN + row) * 5;
        const gone = output.data.subarray(at, at + 5);
        const got = without.without?.data.subarray(
          (head * KEYS + j) * 5,
          (head * KEYS + j) * 5 + 5,
        );
        expectClose(`key ${j}`, got as Float32Array, gone, 20 * MAX_ERROR);
        const change = Math.hypot(...Array.from(gone, (x, d) => x - (whole[at + d] as number)));
        expect(Math.abs((without.change?.data[head * KEYS + j] as number) - change)).toBeLessThan(
          20 * MAX_ERROR,
        );
      }
    }
  });

  it("asks for the row that is to do without", () => {
    const without = { ...options, without: true };
    expectError("option", ["rows: missing", "[i, i + 1]"], () => heed.erasure(q, k, v, without));
    expectError("range", ["rows: got [0, 2]"], () =>
      heed.erasure(q, k, v, { ...without, rows: [0, 2] }),
    );
  });

  it("importance decides what pruning keeps", () => {
    const { output } = heed.attention(q, k, v, options);
    const { importance } = heed.headImportance(output);
    const { keep } = heed.pruneHeads(importance, { numKept: 2 });
    expect(keep.shape).toEqual([1, HEADS, 1, 1]);
    expect(sum(Array.from(keep.data))).toBe(2);
    const pruned = heed.attention(q, k, v, { ...options, keep }).output.data;
    const head = LEN * 5;
    for (let n = 0; n < BATCH * HEADS; n++) {
      const kept = keep.data[n % HEADS] === 1;
      const wanted = kept ? output.data.subarray(n * head, (n + 1) * head) : new Float32Array(head);
      expect(pruned.subarray(n * head, (n + 1) * head)).toEqual(wanted);
    }
    const wO = { data: new Float32Array(HEADS * 5).fill(0), shape: [1, HEADS * 5] };
    expect(Array.from(heed.headImportance(output, { wO }).importance.data)).toEqual([0, 0, 0, 0]);
    const loose = heed.pruneHeads as (...all: unknown[]) => unknown;
    expectError("range", ["numKept", "5"], () => loose(importance, { numKept: 5 }));
  });
});

describe("merge", () => {
  const parts = [0, 1, 2].map((part) => {
    const keep = {
      data: Array.from({ length: KEYS }, (_, j) => j % 3 === part),
      shape: [1, 1, 1, KEYS],
    };
    return heedLater(() =>
      heed.attention(q, k, v, { causal: true, queryOffset: 3, keep, returnLse: true }),
    );
  });
  function heedLater<T>(make: () => T): () => T {
    return make;
  }

  it("makes the whole of its parts", () => {
    const states = parts.map((make) => make());
    const whole = heed.attention(q, k, v, { causal: true, queryOffset: 3, returnLse: true });
    const merged = heed.merge(states);
    expect(merged.output.shape).toEqual(whole.output.shape);
    expectClose("output", merged.output.data, whole.output.data, BOUND);
    expectClose("lse", merged.lse.data, whole.lse.data, 4 * BOUND);
    const [a, b, c] = states as [(typeof states)[0], (typeof states)[0], (typeof states)[0]];
    const grouped = heed.merge([heed.merge([c, a]), b]);
    expectClose("output", grouped.output.data, whole.output.data, BOUND);
  });

  it("takes empty states for nothing", () => {
    const [one] = parts.map((make) => make());
    const nothing = {
      output: {
        data: new Float32Array(BATCH * HEADS * LEN * 5).fill(Number.NaN),
        shape: [BATCH, HEADS, LEN, 5],
      },
      lse: {
        data: new Float32Array(BATCH * HEADS * LEN).fill(-Infinity),
        shape: [BATCH, HEADS, LEN],
      },
    };
    const merged = heed.merge([nothing, one as NonNullable<typeof one>]);
    expect(merged.output.data).toEqual(one?.output.data);
    expect(merged.lse.data).toEqual(one?.lse.data);
  });

  it("says what is wrong", () => {
    const loose = heed.merge as (...all: unknown[]) => unknown;
    const [one] = parts.map((make) => make());
    expectError("option", ["states"], () => loose([]));
    expectError("shape", ["lse"], () => loose([{ output: one?.output, lse: one?.output }]));
    expectError("option", ["states[0].lse"], () => loose([{ output: one?.output }]));
    expectError("shape", ["states[1]"], () =>
      loose([one, { output: randomData([1, 1, 2, 5], 1), lse: randomData([1, 1, 2], 1) }]),
    );
  });
});
