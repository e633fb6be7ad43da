import { type Heed, load } from "heed";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { drawExample } from "../../web/src/lib/example.js";
import { expectClose, expectError, MAX_ERROR, randomData, size } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1, simd: "plain" });
});
afterAll(() => heed.dispose());

const HALVES = ["float16", "bfloat16"] as const;
type Half = (typeof HALVES)[number];
const UNIT: Record<Half, number> = { float16: 2 ** -11, bfloat16: 2 ** -8 };

/** Numbers stored as halves by heed.tensor, as bits and as numbers. */
function stored(shape: number[], seed: number, dtype: Half) {
  const { data } = randomData(shape, seed);
  const tensor = heed.tensor(Array.from(data), shape, { dtype });
  const bits = Uint16Array.from(tensor.data as Uint16Array);
  const numbers = Float32Array.from((tensor.toNested() as number[][][][]).flat(3));
  tensor.dispose();
  return { data, bits, numbers, shape };
}

interface HeedResult {
  dtype: string;
  data: Float32Array;
  toNested(): unknown;
}

const flat = (nested: unknown): number[] => (nested as number[]).flat(9);

describe("float16 and bfloat16", () => {
  it.each(HALVES)("round plain numbers to the nearest %s", (dtype) => {
    const { data, numbers } = stored([1, 2, 30, 8], 1, dtype);
    expect(data.some((x, i) => x !== numbers[i])).toBe(true);
    for (let i = 0; i < data.length; i++) {
      const x = data[i] as number;
      expect(Math.abs((numbers[i] as number) - x)).toBeLessThanOrEqual(UNIT[dtype] * Math.abs(x));
    }
  });

  it.each(HALVES)(
    "round a Float32Array as plain numbers, in tensors and arguments: %s",
    (dtype) => {
      const { data, bits, shape } = stored([1, 2, 30, 8], 1, dtype);
      const tensor = heed.tensor(data, shape, { dtype });
      expect(tensor.dtype).toBe(dtype);
      expect(Uint16Array.from(tensor.data)).toEqual(bits);
      tensor.dispose();
      const asBits = { data: bits, shape, dtype };
      const rounded = { data, shape, dtype };
      const { output } = heed.attention(rounded, rounded, rounded);
      expect(output.dtype).toBe(dtype);
      expect(output.data).toEqual(heed.attention(asBits, asBits, asBits).output.data);
      expectError("dtype", [dtype, "Float64Array"], () =>
        heed.tensor(new Float64Array(2) as never, [2], { dtype }),
      );
    },
  );

  it("has the bits of IEEE binary16 and of the upper half of a float32", () => {
    const numbers = [1, -2, 65504, 65520, 2 ** -24, 2 ** -25, 1 / 3, Number.NaN, -0, Infinity];
    const bits = (dtype: Half) => Array.from(heed.tensor(numbers, [10], { dtype }).data);
    expect(bits("float16")).toEqual([
      0x3c00, 0xc000, 0x7bff, 0x7c00, 1, 0, 0x3555, 0x7e00, 0x8000, 0x7c00,
    ]);
    expect(bits("bfloat16").slice(0, 3)).toEqual([0x3f80, 0xc000, 0x4780]);
    expect(bits("bfloat16")[6]).toBe(0x3eab);
  });

  it.each(HALVES)("%s attention is float32 attention of the stored numbers", (dtype) => {
    const [q, k, v] = [
      stored([1, 4, 9, 16], 2, dtype),
      stored([1, 2, 30, 16], 3, dtype),
      stored([1, 2, 30, 8], 4, dtype),
    ];
    const half = ({ bits, shape }: typeof q) => ({ data: bits, shape, dtype });
    const wide = ({ numbers, shape }: typeof q) => ({ data: numbers, shape });
    const options = { causal: true, queryOffset: "end", returnLse: true } as const;
    const got = heed.attention(half(q), half(k), half(v), options);
    const wanted = heed.attention(wide(q), wide(k), wide(v), options);
    expect(got.output.dtype).toBe(dtype);
    expect(got.output.data).toBeInstanceOf(Uint16Array);
    expect(got.lse.dtype).toBe("float32");
    expect(Array.from(got.lse.data)).toEqual(Array.from(wanted.lse.data));
    expectClose("output", flat(got.output.toNested()), wanted.output.data, UNIT[dtype]);
    // Types mix; the output follows q.
    const mixed = heed.attention(wide(q), half(k), wide(v), options);
    expect(mixed.output.dtype).toBe("float32");
    expect(Array.from(mixed.output.data)).toEqual(Array.from(wanted.output.data));
  });

  it.each(HALVES)("%s agrees with the oracle, which reads the same bits", async (dtype) => {
    const shape = [1, 1, 12, 8];
    const inputs = Object.fromEntries(
      ["q", "k", "v"].map((name, n) => {
        return [name, { data: stored(shape, 10 + n, dtype).bits, shape, dtype }];
      }),
    );
    const expected = await heed.reference("attention", inputs, { causal: true });
    const { output } = heed.run("attention", inputs, { causal: true });
    expect(output.dtype).toBe(dtype);
    expectClose("output", flat(output.toNested()), expected.output.data, UNIT[dtype] + MAX_ERROR);
  });

  it.each(HALVES)("%s q, k and v serve every mechanism that has them", (dtype) => {
    const parameters = new Map(heed.parameters.map((row) => [row.name, row]));
    const run = heed.run as (...args: unknown[]) => { output: HeedResult };
    let seen = 0;
    for (const mechanism of heed.mechanisms) {
      const { inputs, params } = drawExample(mechanism, parameters);
      const names = ["q", "k", "v"].filter((name) => name in inputs);
      if (["layer", "position"].includes(mechanism.family) || names.length === 0) continue;
      const halves: Record<string, unknown> = { ...inputs };
      const wide: Record<string, unknown> = { ...inputs };
      names.forEach((name, n) => {
        const shape = inputs[name]?.shape as number[];
        const { bits, numbers } = stored(shape, 20 + n, dtype);
        halves[name] = { data: bits, shape, dtype };
        wide[name] = { data: numbers, shape };
      });
      const got = run(mechanism.id, halves, params).output;
      const wanted = run(mechanism.id, wide, params).output;
      expect(got.dtype, mechanism.id).toBe(dtype);
      const numbers = flat(got.toNested());
      wanted.data.forEach((x, i) => {
        const far = Math.abs((numbers[i] as number) - x);
        expect(far, mechanism.id).toBeLessThanOrEqual(UNIT[dtype] * Math.abs(x) + 1e-6);
      });
      seen++;
    }
    expect(seen).toBeGreaterThan(40);
  });

  it("lives in tensors, whose results are tensors", () => {
    const shape = [1, 1, 3, 4];
    const q = heed.tensor(randomData(shape, 5).data, shape);
    const halves = heed.tensor(stored(shape, 6, "bfloat16").bits, shape, { dtype: "bfloat16" });
    expect(halves.dtype).toBe("bfloat16");
    expect(heed.attention(q, halves, halves).output.dtype).toBe("float32");
    const { output } = heed.attention(halves, halves, halves);
    expect(output.dtype).toBe("bfloat16");
    expect(output.data.length).toBe(size(shape));
    for (const tensor of [q, halves, output]) tensor.dispose();
  });

  it("keeps the kind of a Float16Array", () => {
    // Node 20 has none: a stand-in with the same name and layout, for this test only.
    class Float16Array extends Uint16Array {
      override get [Symbol.toStringTag](): "Uint16Array" {
        return "Float16Array" as "Uint16Array";
      }
    }
    const globals = globalThis as { Float16Array?: unknown };
    const before = globals.Float16Array;
    globals.Float16Array = Float16Array;
    try {
      const shape = [1, 1, 3, 4];
      const x = { data: new Float16Array(stored(shape, 7, "float16").bits), shape };
      const { output } = heed.attention(x, x, x);
      expect(output.dtype).toBe("float16");
      expect(output.data).toBeInstanceOf(Float16Array);
      const tensor = heed.tensor(x as { data: ArrayBufferView; shape: number[] });
      expect(tensor.data).toBeInstanceOf(Float16Array);
      expect(heed.attention(tensor, tensor, tensor).output.data).toBeInstanceOf(Float16Array);
    } finally {
      globals.Float16Array = before;
      if (before === undefined) delete globals.Float16Array;
    }
  });

  it("is refused where float32 is needed", () => {
    const x = { data: new Uint16Array(4), shape: [1, 1, 2, 2], dtype: "float16" };
    const plain = randomData([1, 1, 2, 2], 8);
    expectError("dtype", ["bias", "float16"], () =>
      heed.attention(plain, plain, plain, {
        bias: { data: new Uint16Array(4), shape: [2, 2], dtype: "float16" },
      }),
    );
    expectError("dtype", ["q", "Uint16Array without dtype"], () =>
      heed.attention({ data: new Uint16Array(4), shape: [1, 1, 2, 2] }, plain, plain),
    );
    expectError("shape", ["k"], () =>
      heed.attention(x, { data: new Uint16Array(3), shape: [1, 1, 2, 2], dtype: "float16" }, x),
    );
  });
});
