import { type Heed, type KvCache, load } from "heed";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  type Data,
  expectClose,
  expectError,
  MAX_ERROR,
  random,
  randomData,
  size,
} from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1, simd: "plain" });
});
afterAll(() => heed.dispose());

/** Tokens [begin, end) of [batch, heads, len, dim]. */
function slice({ data, shape }: Data, begin: number, end: number): Data {
  const [batch = 0, heads = 0, len = 0, dim = 0] = shape;
  const out = new Float32Array(batch * heads * (end - begin) * dim);
  for (let row = 0; row < batch * heads; row++) {
    const from = data.subarray((row * len + begin) * dim, (row * len + end) * dim);
    out.set(from, row * (end - begin) * dim);
  }
  return { data: out, shape: [batch, heads, end - begin, dim] };
}

const SIZES = { batch: 2, numKvHeads: 2, headDim: 8, headDimV: 16 };
const k = randomData([2, 2, 40, 8], 1);
const v = randomData([2, 2, 40, 16], 2);
const q = randomData([2, 4, 40, 8], 3);

function fill(cache: KvCache, begin: number, end: number): void {
  cache.append(slice(k, begin, end), slice(v, begin, end));
}

describe("heed.KvCache", () => {
  it("decodes token by token what prefill computes at once", () => {
    const { output } = heed.attention(q, k, v, { causal: true });
    const wanted = { data: output.data, shape: [...output.shape] };
    using_(new heed.KvCache({ ...SIZES, capacity: 40 }), (cache) => {
      for (let i = 0; i < 40; i++) {
        fill(cache, i, i + 1);
        const step = cache.attend(slice(q, i, i + 1));
        const expected = slice(wanted, i, i + 1).data;
        expectClose(`token ${i}`, step.output.data, expected, MAX_ERROR);
      }
      expect(cache.lengths).toEqual([40, 40]);
    });
  });

  it("has the bits of attention to the stored tokens where keys are scored row by row, in every type", () => {
    const len = 1100; // more than 1024
    // Whole numbers to 127, which every row reaches: all types store them as they are.
    const whole = (data: Data): Data => ({
      ...data,
      data: data.data.map((value, at) => (at % 8 === 0 ? 127 : Math.round(40 * value) % 127)),
    });
    const keys = whole(randomData([2, 2, len, 8], 4));
    const values = whole(randomData([2, 2, len, 16], 5));
    for (const count of [1, 2]) {
      const queries = slice(q, 0, count);
      const options = {
        scale: 2 ** -8,
        causal: true,
        queryOffset: "end",
        returnLse: true,
      } as const;
      const wanted = heed.attention(queries, keys, values, options);
      for (const dtype of ["float32", "float16", "bfloat16", "int8"] as const) {
        using_(new heed.KvCache({ ...SIZES, dtype }), (cache) => {
          cache.append(keys, values);
          const got = cache.attend(queries, { scale: 2 ** -8, returnLse: true });
          expect(got.output.data, `${dtype}, ${count} queries`).toEqual(wanted.output.data);
          expect(got.lse.data, `${dtype}, ${count} queries`).toEqual(wanted.lse.data);
        });
      }
    }
  });

  it("has the same bits paged and contiguous", () => {
    const run = (sizes: { capacity?: number; blockSize?: number }) =>
      using_(new heed.KvCache({ ...SIZES, ...sizes }), (cache) => {
        fill(cache, 0, 40);
        return cache.attend(slice(q, 37, 40), { returnLse: true, softcap: 20 });
      });
    const contiguous = run({ capacity: 40 });
    const paged = run({ blockSize: 7 });
    expect(Array.from(paged.output.data)).toEqual(Array.from(contiguous.output.data));
    expect(Array.from(paged.lse.data)).toEqual(Array.from(contiguous.lse.data));
    expect(paged.lse.shape).toEqual([2, 4, 3]);
  });

  it.each([
    ["float16", 2 ** -11],
    ["bfloat16", 2 ** -8],
    ["int8", 1 / 127],
    ["float8_e4m3", 2 ** -4],
  ] as const)("stores %s within its rounding", (dtype, rounding) => {
    const wanted = heed.attention(slice(q, 39, 40), k, v);
    const got = using_(new heed.KvCache({ ...SIZES, blockSize: 16, dtype }), (cache) => {
      fill(cache, 0, 40);
      return cache.attend(slice(q, 39, 40));
    });
    expectClose(dtype, got.output.data, wanted.output.data, 4 * rounding);
    expect(Array.from(got.output.data)).not.toEqual(Array.from(wanted.output.data));
  });

  it("forgets and forks without disturbing the original", () => {
    const cache = new heed.KvCache({ ...SIZES, blockSize: 4 });
    fill(cache, 0, 10);
    const alone = new heed.KvCache({ ...SIZES, batch: 1, blockSize: 4 });
    const first = (x: Data): Data => ({
      data: x.data.subarray(0, x.data.length / 2),
      shape: [1, ...x.shape.slice(1)],
    });
    alone.append(first(slice(k, 0, 10)), first(slice(v, 0, 10)));
    const fork = cache.fork([0, 0, 0]);
    expect(fork.lengths).toEqual([10, 10, 10]);
    expect(fork.memory().bytes).toBe(cache.memory().bytes / 2);
    expect(fork.memory().sharedBytes).toBe(fork.memory().bytes);
    fork.rewind(1, 3);
    expect(fork.lengths).toEqual([10, 3, 10]);
    expect(cache.lengths).toEqual([10, 10]);
    const one = first(slice(q, 9, 10));
    const three = { data: new Float32Array(3 * one.data.length), shape: [3, 4, 1, 8] };
    for (const n of [0, 1, 2]) three.data.set(one.data, n * one.data.length);
    const all = fork.attend(three).output.data;
    const wanted = Array.from(alone.attend(one).output.data);
    expect(Array.from(all.subarray(0, 64))).toEqual(wanted);
    expect(Array.from(all.subarray(128))).toEqual(wanted);
    for (const each of [cache, alone, fork]) each.dispose();
  });

  it("reads the pages that a query can score in, as the mechanism quest does", () => {
    using_(new heed.KvCache({ ...SIZES, pageSize: 4 }), (cache) => {
      for (const [begin, end] of [
        [0, 30],
        [30, 31],
        [31, 40],
      ] as const) {
        fill(cache, begin, end);
        const queries = slice(q, end - 1, end);
        const inputs = { q: queries, k: slice(k, 0, end), v: slice(v, 0, end) };
        const wanted = heed.run("quest", inputs, { pageSize: 4, topPages: 3, queryOffset: "end" });
        const got = cache.attend(queries, { topPages: 3 });
        expectClose("pages", got.output.data, wanted.output.data, 2 * MAX_ERROR);
        const all = cache.attend(queries, { topPages: 10 });
        expectClose("all", all.output.data, cache.attend(queries).output.data, 2 * MAX_ERROR);
      }
      expectError("range", ["topPages"], () => cache.attend(slice(q, 39, 40), { topPages: 0 }));
    });
    using_(new heed.KvCache(SIZES), (cache) => {
      fill(cache, 0, 4);
      expectError("option", ["topPages", "pageSize"], () =>
        cache.attend(slice(q, 3, 4), { topPages: 1 }),
      );
    });
  });

  it("keeps the tokens that weigh most, as the mechanism heavy_hitter does", () => {
    const wanted = heed.run("heavy_hitter", { q, k, v }, { recentTokens: 6, heavyTokens: 3 });
    using_(
      new heed.KvCache({ ...SIZES, blockSize: 4, recentTokens: 6, heavyTokens: 3 }),
      (cache) => {
        for (let t = 0; t < 40; t++) {
          fill(cache, t, t + 1);
          const { output } = cache.attend(slice(q, t, t + 1));
          const row = slice(wanted.output as Data, t, t + 1);
          expectClose(`token ${t}`, output.data, row.data, MAX_ERROR);
          const held = cache.tokens(1, 0);
          expect(held.length).toBe(Math.min(t + 1, 9));
          expect(held.slice(-Math.min(t + 1, 6))).toEqual(
            Array.from({ length: Math.min(t + 1, 6) }, (_, n) => t + 1 - Math.min(t + 1, 6) + n),
          );
        }
        expect(cache.memory().blocks).toBe(2 * 3);
        expectError("unsupported", ["length"], () => cache.rewind(0, 20));
        expectError("range", ["head"], () => cache.tokens(0, 2));
      },
    );
  });

  it("keeps the recent and the first tokens in bounded memory", () => {
    using_(
      new heed.KvCache({ ...SIZES, batch: 1, blockSize: 4, recentTokens: 8, sinkTokens: 2 }),
      (cache) => {
        const one = (x: Data, i: number): Data => {
          const token = slice(x, i % 40, (i % 40) + 1);
          const [, heads = 0, len = 0, dim = 0] = token.shape;
          return { data: token.data.subarray(0, heads * dim), shape: [1, heads, len, dim] };
        };
        for (let i = 0; i < 300; i++) {
          cache.append(one(k, i), one(v, i));
          expect(cache.memory().blocks).toBeLessThanOrEqual(5);
        }
        const seen = [0, 1, ...Array.from({ length: 8 }, (_, n) => 292 + n)];
        const gather = (x: Data): Data => {
          const rows = seen.map((i) => one(x, i));
          const [, heads = 0, , dim = 0] = (rows[0] as Data).shape;
          const data = new Float32Array(heads * seen.length * dim);
          rows.forEach((row, n) => {
            for (let h = 0; h < heads; h++) {
              data.set(row.data.subarray(h * dim, (h + 1) * dim), (h * seen.length + n) * dim);
            }
          });
          return { data, shape: [1, heads, seen.length, dim] };
        };
        const wanted = heed.attention(one(q, 299), gather(k), gather(v));
        const got = cache.attend(one(q, 299));
        expectClose("recent", got.output.data, wanted.output.data, 2 * MAX_ERROR);
      },
    );
  });

  it("takes ragged batches", () => {
    using_(new heed.KvCache({ ...SIZES, blockSize: 4 }), (cache) => {
      cache.append(slice(k, 0, 10), slice(v, 0, 10), { lengths: [10, 4] });
      expect(cache.lengths).toEqual([10, 4]);
      const { output, lse } = cache.attend(slice(q, 0, 2), {
        queryLengths: [2, 1],
        returnLse: true,
      });
      expect(output.shape).toEqual([2, 4, 2, 16]);
      const rows = lse.toNested() as number[][][];
      expect(rows[0]?.[0]?.every(Number.isFinite)).toBe(true);
      expect(rows[1]?.[3]).toEqual([expect.any(Number), Number.NEGATIVE_INFINITY]);
    });
  });

  it("takes counts as any vector of whole numbers", () => {
    const counts = [
      [1, 2],
      Int32Array.of(1, 2),
      { data: [1, 2], shape: [2] },
      heed.tensor(Int32Array.of(1, 2), [2]),
    ];
    for (const lengths of counts) {
      using_(new heed.KvCache(SIZES), (cache) => {
        cache.append(slice(k, 0, 2), slice(v, 0, 2), { lengths });
        expect(cache.lengths).toEqual([1, 2]);
        const [fork, { output }] = [
          cache.fork(),
          cache.attend(slice(q, 0, 2), { queryLengths: lengths }),
        ];
        expect(fork).toBeInstanceOf(heed.KvCache);
        expect(output.shape[2]).toBe(2);
        fork.dispose();
      });
    }
  });

  it("agrees with a plain model over random histories", () => {
    for (let seed = 1; seed <= 10; seed++) {
      const next = random(seed);
      const whole = (n: number) => Math.floor(((next() + 1) / 2) * n);
      const cache = new heed.KvCache({ numKvHeads: 1, headDim: 4, blockSize: 1 + whole(5) });
      let model: number[] = [];
      let fresh = 0;
      for (let step = 0; step < 30; step++) {
        if (whole(3) > 0) {
          const len = 1 + whole(4);
          const values = Array.from({ length: len }, () => ++fresh);
          model.push(...values);
          const rows = Float32Array.from(values.flatMap((x) => [x, x, x, x]));
          cache.append(
            { data: new Float32Array(rows.length), shape: [len, 4] },
            { data: rows, shape: [len, 4] },
          );
        } else {
          const length = whole(model.length + 1);
          model = model.slice(0, length);
          cache.rewind(0, length);
        }
        expect(cache.lengths).toEqual([model.length]);
        if (model.length === 0) continue;
        // Equal keys: the mean of the values that are there.
        const { output } = cache.attend({ data: new Float32Array(4), shape: [1, 4] });
        const mean = model.reduce((a, b) => a + b, 0) / model.length;
        expect(Math.abs((output.data[0] as number) - mean)).toBeLessThan(1e-6 * (mean + 1));
      }
      cache.dispose();
    }
  });

  it("follows the kind of q, and frees what it held", () => {
    const before = heed.memory().tensors;
    const cache = new heed.KvCache({ ...SIZES, capacity: 40, dtype: "bfloat16" });
    fill(cache, 0, 40);
    const one = slice(q, 39, 40);
    const tensor = heed.tensor(one.data, one.shape);
    const { output } = cache.attend(tensor);
    expect(output.disposed).toBe(false);
    tensor.dispose();
    output.dispose();
    expect(heed.memory().tensors).toBe(before);
    cache.dispose();
    cache.dispose();
    expect(cache.disposed).toBe(true);
    expectError("disposed", ["cache"], () => cache.lengths);
  });

  it("names what is wrong", () => {
    const make = (options: object) => () => new heed.KvCache({ ...SIZES, ...options });
    expectError("range", ["batch", "0"], make({ batch: 0 }));
    expectError("range", ["headDim", "1.5"], make({ headDim: 1.5 }));
    expectError("dtype", ["dtype", "int4"], make({ dtype: "int4" }));
    // The instance goes on: more than its memory holds is no crash.
    expectError("memory", ["cache"], make({ batch: 2 ** 31 - 1 }));
    expectError("option", ["sinkTokens", "recentTokens"], make({ sinkTokens: 2 }));
    expectError("option", ["window", "write `recentTokens`"], make({ window: 8 }));
    expectError("option", ["sinks", "write `sinkTokens`"], make({ recentTokens: 8, sinks: 2 }));
    expectError("option", ["heavyTokens", "recentTokens"], make({ heavyTokens: 2 }));
    expectError(
      "unsupported",
      ["pageSize", "recentTokens"],
      make({ pageSize: 2, recentTokens: 8 }),
    );
    const most = 2 ** 31 - 1;
    expectError("shape", [`capacity = ${most}`], make({ capacity: most }));
    expectError("shape", [`blockSize = ${most}`], make({ blockSize: most }));
    expectError("range", ["blockSize", "pageSize"], make({ pageSize: 4, blockSize: 6 }));
    expectError("option", ["blocksize", "blockSize"], make({ blocksize: 2 }));
    expectError("option", ["numKvHeads"], () => new heed.KvCache({ headDim: 2 } as never));
    const Cache = heed.KvCache as unknown as (options: object) => unknown;
    expectError("option", ["new heed.KvCache(options)"], () => Cache(SIZES));
    using_(new heed.KvCache({ ...SIZES, recentTokens: 4, heavyTokens: 2 }), (cache) => {
      fill(cache, 0, 1);
      const alibiSlopes = new Float32Array(4);
      expectError("unsupported", ["alibiSlopes"], () =>
        cache.attend(slice(q, 0, 1), { alibiSlopes }),
      );
    });
    using_(new heed.KvCache({ ...SIZES, capacity: 3 }), (cache) => {
      expectError("shape", ["k", "[2, 2, len, 8]"], () => cache.append(v, v));
      expectError("range", ["capacity of 3"], () => fill(cache, 0, 4));
      fill(cache, 0, 2);
      expectError("shape", ["q", "num_heads"], () => cache.attend(v));
      expectError("range", ["2 tokens and 3 queries"], () => cache.attend(slice(q, 0, 3)));
      expectError("range", ["lengths[1]", "3"], () =>
        cache.append(slice(k, 0, 1), slice(v, 0, 1), { lengths: [1, 3] }),
      );
      expectError("range", ["sequence", "2"], () => cache.rewind(2, 0));
      expectError("range", ["length"], () => cache.rewind(0, 9));
      expectError("range", ["sequences[0]"], () => cache.fork([5]));
      expectError("option", ["sequences: got null"], () => cache.fork(null as never));
      expectError("option", ["causal"], () =>
        cache.attend(slice(q, 0, 1), { causal: true } as never),
      );
      expectError("shape", ["sinks"], () =>
        cache.attend(slice(q, 0, 1), { sinks: { data: new Float32Array(3), shape: [3] } }),
      );
      expect(cache.lengths).toEqual([2, 2]);
    });
    expect(size(k.shape)).toBe(k.data.length);
  });
});

/** `using`, for engines without it. */
function using_<T>(cache: KvCache, work: (cache: KvCache) => T): T {
  try {
    return work(cache);
  } finally {
    cache.dispose();
  }
}
