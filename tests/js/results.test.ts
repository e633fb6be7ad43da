import { readFileSync } from "node:fs";
import { alibiSlopes, type Heed, keepFromDropMask, lastN, load, VERSION } from "heed";
import { load as loadInline } from "heed/inline";
import { beforeAll, describe, expect, it } from "vitest";
import { expectClose, largest, MAX_ERROR, randomData, root, size } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

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

describe("plain arguments", () => {
  it("give plain results with buffers that can be transferred", () => {
    const { output, weights } = heed.attention(Q, K, V, { returnWeights: true });
    expect(output.dtype).toBe("float32");
    expect(output.data.buffer).toBeInstanceOf(ArrayBuffer);
    expectClose("row 0", weights.data.subarray(0, 3), [0.401, 0.401, 0.198], 5e-4);
    const nested = output.toNested() as number[][];
    expectClose("output", nested.flat(), [0.599, 1, 0.599, 1.203], 5e-4);
    structuredClone(output.data.buffer, { transfer: [output.data.buffer] });
    expect(output.data.length).toBe(0);
  });

  it("have only the fields that were asked for", () => {
    const keys = (result: object): string[] => Object.keys(result).sort();
    expect(keys(heed.attention(Q, K, V))).toEqual(["output"]);
    expect(keys(heed.attention(Q, K, V, { returnLse: true, returnWeights: false }))).toEqual([
      "lse",
      "output",
    ]);
    const all = { returnLse: true, returnWeights: true, returnScores: "raw" } as const;
    expect(keys(heed.attention(Q, K, V, all))).toEqual(["lse", "output", "scores", "weights"]);
  });

  it.each([
    [[2, 4, 5, 8], [2, 2, 7, 8], [2, 2, 7, 3], "bhld", [2, 4, 5, 3]],
    [[2, 5, 4, 8], [2, 7, 2, 8], [2, 7, 2, 3], "blhd", [2, 5, 4, 3]],
    [[2, 5, 8], [2, 7, 8], [2, 7, 3], "bhld", [2, 5, 3]],
    [[5, 8], [7, 8], [7, 3], "bhld", [5, 3]],
    [[0, 2, 5, 8], [0, 2, 7, 8], [0, 2, 7, 3], "bhld", [0, 2, 5, 3]],
    [[1, 2, 0, 8], [1, 2, 7, 8], [1, 2, 7, 3], "bhld", [1, 2, 0, 3]],
    [[1, 2, 5, 8], [1, 2, 7, 8], [1, 2, 7, 0], "bhld", [1, 2, 5, 0]],
  ] as const)("of shape %j and %j keep rank and layout", (q, k, v, layout, wanted) => {
    const make = (shape: readonly number[]) => randomData([...shape], 3);
    const asked = { layout, returnLse: true, returnWeights: true } as const;
    const result = heed.attention(make(q), make(k), make(v), asked);
    expect(result.output.shape).toEqual(wanted);
    expect(result.output.data.length).toBe(size(wanted));
    const [batch, heads, qLen] =
      q.length === 4
        ? [q[0], q[layout === "bhld" ? 1 : 2], q[layout === "bhld" ? 2 : 1]]
        : [q.length === 3 ? q[0] : 1, 1, q.at(-2)];
    expect(result.lse.shape).toEqual([batch, heads, qLen]);
    expect(result.weights.shape).toEqual([batch, heads, qLen, 7]);
  });

  it("give the same numbers in both layouts", () => {
    const q = randomData([2, 5, 4, 8], 1);
    const k = randomData([2, 7, 2, 8], 2);
    const v = randomData([2, 7, 2, 3], 3);
    const swap = ({ data, shape }: typeof q) => {
      const [b = 0, l = 0, h = 0, d = 0] = shape;
      const out = new Float32Array(data.length);
      for (let i = 0; i < data.length; i++) {
        const [x, y, z, w] = [
          Math.floor(i / (l * h * d)),
          Math.floor(i / (h * d)) % l,
          Math.floor(i / d) % h,
          i % d,
        ];
        out[((x * h + z) * l + y) * d + w] = data[i] as number;
      }
      return { data: out, shape: [b, h, l, d] };
    };
    const blhd = heed.attention(q, k, v, { layout: "blhd" }).output;
    const bhld = heed.attention(swap(q), swap(k), swap(v)).output;
    expect(swap({ data: blhd.data, shape: [...blhd.shape] }).data).toEqual(bhld.data);
  });

  it("give zeros and lse -Infinity for a query without keys, also when there are no keys at all", () => {
    const keep = [
      [true, true, true],
      [false, false, false],
    ];
    const asked = { returnLse: true, returnWeights: true } as const;
    const { output, lse, weights } = heed.attention(Q, K, V, { keep, ...asked });
    expect(Array.from(output.data.subarray(2))).toEqual([0, 0]);
    expect(Array.from(weights.data.subarray(3))).toEqual([0, 0, 0]);
    expect(lse.data[1]).toBe(-Infinity);
    const none = { data: new Float32Array(0), shape: [0, 2] };
    const empty = heed.attention(Q, none, none, asked);
    expect(Array.from(empty.output.data)).toEqual([0, 0, 0, 0]);
    expect(Array.from(empty.lse.data)).toEqual([-Infinity, -Infinity]);
  });

  it("are read from views at any offset, shared memory, boolean arrays and earlier results", () => {
    const wanted = heed.attention(Q, K, V).output.data;
    const backing = new Float32Array(20).fill(NaN);
    backing.set(Q.flat(), 7);
    const view = { data: backing.subarray(7, 11), shape: [2, 2] };
    expect(heed.attention(view, K, V).output.data).toEqual(wanted);
    const shared = new Float32Array(new SharedArrayBuffer(16));
    shared.set(Q.flat());
    expect(heed.attention({ data: shared, shape: [2, 2] }, K, V).output.data).toEqual(wanted);
    const keep = { data: [true, true, false, true, true, false], shape: [2, 3] };
    const short = heed.attention(Q, K, V, { keyLengths: [2] }).output;
    expect(heed.attention(Q, K, V, { keep }).output.data).toEqual(short.data);
    expect(heed.attention(short, K, V).output.shape).toEqual([2, 2]);
  });
});

describe("tensors", () => {
  it("give tensors, and the same numbers as plain arguments", () => {
    const q = heed.tensor(Q);
    const k = heed.tensor(K.flat(), [3, 2]);
    const { output } = heed.attention(q, k, V);
    expect(output.data).toEqual(heed.attention(Q, K, V).output.data);
    expect(heed.memory().tensors).toBe(3);
    const onlyKeep = heed.tensor([true, false, true], [1, 3]);
    const kept = heed.attention(Q, K, V, { keep: onlyKeep }).output;
    expect(kept.disposed).toBe(false);
    for (const tensor of [q, k, output, onlyKeep, kept]) tensor.dispose();
    expect(heed.memory()).toMatchObject({ tensors: 0, bytes: 0 });
  });

  it("keep their element type, and write through their view", () => {
    const made = [
      heed.tensor(new Float32Array([1, 2]), [2]),
      heed.tensor(new Uint8Array([1, 0]), [2]),
      heed.tensor(new Int32Array([1, 0]), [2]),
      heed.tensor([true, false], [2]),
      heed.tensor([3, 4], [2], { dtype: "int32" }),
      heed.tensor({ data: new Float32Array(2), shape: [2] }),
    ];
    expect(made.map(({ dtype }) => dtype)).toEqual([
      "float32",
      "uint8",
      "int32",
      "uint8",
      "int32",
      "float32",
    ]);
    const [first] = made;
    if (first !== undefined) first.data[1] = 7;
    expect(first?.toNested()).toEqual([1, 7]);
    for (const tensor of made) tensor.dispose();
  });

  it("stay what they are: the shape decides what is read", () => {
    const tensor = heed.tensor([1, 2, 3, 4], [1, 1, 2, 2]);
    const loose = tensor as unknown as Record<string, unknown>;
    for (const name of ["shape", "dtype", "heap"]) {
      expect(() => {
        loose[name] = [1, 1, 300, 2];
      }).toThrow(TypeError);
    }
    expect(heed.attention(tensor, tensor, tensor).output.shape).toEqual([1, 1, 2, 2]);
    tensor.dispose();
    expect(tensor.disposed).toBe(true);
  });

  it("stay valid while the memory grows", () => {
    const tensor = heed.tensor([1, 2, 3, 4], [2, 2]);
    const before = tensor.data;
    const { heapBytes } = heed.memory();
    const big = heed.tensor(new Float32Array(heapBytes / 4), [heapBytes / 4]);
    expect(heed.memory().heapBytes).toBeGreaterThan(heapBytes);
    expect(before.length, "the old view was detached by the growth").toBe(0);
    expect(Array.from(tensor.data)).toEqual([1, 2, 3, 4]);
    expect(heed.attention(tensor, tensor, tensor).output.shape).toEqual([2, 2]);
    big.dispose();
    tensor.dispose();
  });

  it("of another instance are copied", async () => {
    const other = await load({ threads: 1 });
    const q = other.tensor(Q);
    expect(heed.attention(q, K, V).output.data).toEqual(heed.attention(Q, K, V).output.data);
    other.dispose();
  });

  it("of heed/inline, whose class is another one, are tensors as well", async () => {
    const inline = await loadInline();
    const q = inline.tensor(Q);
    const { output } = heed.attention(q, K, V);
    expect("dispose" in output).toBe(true);
    expect(output.toNested()).toEqual(heed.attention(Q, K, V).output.toNested());
    expect(() => heed.tensor(q as never)).toThrow("data that is not a Tensor yet");
    q.dispose();
    expect(() => heed.attention(K, q, V)).toThrow("k: this tensor was disposed of");
    expect(() => inline.attention(heed.tensor([true], [1, 1]), K, V)).toThrow(
      "q: got uint8, expected Float32Array or nested arrays of numbers",
    );
    inline.dispose();
  });

  it.runIf("dispose" in Symbol)("dispose of themselves at the end of a using block", () => {
    const tensor = heed.tensor([1], [1]) as unknown as Record<symbol, () => void> & {
      disposed: boolean;
    };
    tensor[(Symbol as unknown as { dispose: symbol }).dispose]?.();
    expect(tensor.disposed).toBe(true);
  });
});

describe("masks", () => {
  it("agree with each other", () => {
    const q = randomData([1, 2, 6, 8], 1);
    const k = randomData([1, 2, 6, 8], 2);
    const data = (options: object) => heed.attention(q, k, k, options).output.data;
    const allowed = (see: (i: number, j: number) => boolean) =>
      Array.from({ length: 6 }, (_, i) => Array.from({ length: 6 }, (__, j) => see(i, j)));
    const bound = MAX_ERROR * largest(k.data);
    const window = lastN(3);
    expect(window).toEqual({ left: 2, right: 0 });
    expectClose("causal", data({ causal: true }), data({ keep: allowed((i, j) => j <= i) }), bound);
    expectClose(
      "lastN",
      data({ window }),
      data({ keep: allowed((i, j) => j <= i && j > i - 3) }),
      bound,
    );
    const hidden = allowed((i, j) => j > i);
    expectClose("drop", data({ keep: keepFromDropMask(hidden) }), data({ causal: true }), bound);
    expectClose("end", data({ causal: true, queryOffset: "end" }), data({ causal: true }), 0);
  });

  it("hide NaN and Infinity", () => {
    const k = [
      [1, 0],
      [NaN, Infinity],
      [0, 1],
    ];
    const keep = [[true, false, true]];
    const clean = heed.attention(Q, K, V, { keep }).output;
    expect(
      heed.attention(
        Q,
        k,
        k.map((row, j) => (j === 1 ? row : (V[j] as number[]))),
        { keep },
      ).output.data,
    ).toEqual(clean.data);
  });
});

describe("visible NaN", () => {
  // WebAssembly's maximum drops a NaN or keeps it, depending on the order of its operands.
  it("reaches the rows that see it and no other", () => {
    const q = [[NaN, 0], Q[1] as number[]];
    const { output, lse } = heed.attention(q, K, V, { returnLse: true });
    const clean = heed.attention(Q, K, V, { returnLse: true });
    expect([...output.data.subarray(0, 2), lse.data[0]]).toEqual([NaN, NaN, NaN]);
    expect(output.data.subarray(2)).toEqual(clean.output.data.subarray(2));
    expect(lse.data[1]).toBe(clean.lse.data[1]);
  });

  it("is not lost among finite scores", () => {
    const k = [K[0] as number[], [0, NaN], K[2] as number[]];
    const causal = { causal: true, queryOffset: 0, softcap: 5 };
    const { output } = heed.attention(Q, k, V, causal);
    const clean = heed.attention(Q, K, V, causal);
    expect(output.data.subarray(0, 2)).toEqual(clean.output.data.subarray(0, 2));
    expect([...output.data.subarray(2)]).toEqual([NaN, NaN]);
  });
});

describe("registry", () => {
  it("lists mechanisms and parameters in JavaScript's words", () => {
    const ids = heed.mechanisms.map(({ id }) => id);
    expect(ids).toEqual(expect.arrayContaining(["scaled_dot_product", "kernel_regression"]));
    const known = new Set(heed.parameters.map(({ name }) => name));
    for (const mechanism of heed.mechanisms) {
      expect(mechanism.title).not.toBe("");
      expect(mechanism.inputs.length).toBeGreaterThan(0);
      for (const name of mechanism.params) expect(known).toContain(name);
    }
    const inputs = heed.mechanisms.find(({ id }) => id === "scaled_dot_product")?.inputs;
    expect(inputs?.find(({ name }) => name === "keyLengths")).toMatchObject({
      optional: true,
      kind: "int",
      shapes: [["batch"], ["batch", "q_len"]],
    });
    expect(heed.parameters.find(({ name }) => name === "queryOffset")?.type).toBe("offset");
  });

  it("runs what attention runs, by id", () => {
    const { output, lse } = heed.run(
      "scaled_dot_product",
      { q: Q, k: K, v: V },
      { returnLse: true, scale: 1 },
    );
    const direct = heed.attention(Q, K, V, { returnLse: true, scale: 1 });
    expect(output.data).toEqual(direct.output.data);
    expect(lse?.data).toEqual(direct.lse.data);
  });

  it("takes float64 inputs in the oracle", async () => {
    const q = { data: Float64Array.from(Q.flat()), shape: [2, 2] };
    const { output } = await heed.reference("scaled_dot_product", { q, k: K, v: V });
    expect(output.data).toBeInstanceOf(Float64Array);
    expectClose("output", heed.attention(Q, K, V).output.data, output.data, MAX_ERROR * 2);
  });

  it("has one version", () => {
    const { version } = JSON.parse(readFileSync(`${root}package.json`, "utf8")) as {
      version: string;
    };
    expect([VERSION, heed.version]).toEqual([version, version]);
  });
});

describe("alibiSlopes", () => {
  it("are those of C++ for any number of heads", async () => {
    const { default: factory } = (await import("../../dist/wasm/heed-simd.mjs")) as {
      default: (
        settings: object,
      ) => Promise<{ alibiSlopes(heads: number, exponent: number): number[] }>;
    };
    const glue = await factory({ wasmBinary: readFileSync(`${root}dist/wasm/heed-simd.wasm`) });
    for (let heads = 1; heads <= 130; heads++) {
      expectClose(`${heads} heads`, alibiSlopes(heads), glue.alibiSlopes(heads, 8), 0);
      const steep = alibiSlopes(heads, { maxExponent: 12.5 });
      expectClose(`${heads} heads, steep`, steep, glue.alibiSlopes(heads, 12.5), 0);
    }
  });
});
