import { type Heed, load, type RunInputs, type RunParams, type TensorArgument } from "heed";
import { load as loadCore } from "heed/core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Data, expectError, random, randomData, size } from "./support.js";

const ONE = { threads: 1, simd: "plain" } as const;
const STEP = 1e-4;

let heed: Heed;
beforeAll(async () => {
  heed = await load(ONE);
});
afterAll(() => heed.dispose());

// Two query heads a KV head, odd sizes.
const q = randomData([2, 4, 5, 3], 1);
const k = randomData([2, 2, 7, 3], 2);
const v = randomData([2, 2, 7, 5], 3);
const gradOutput = randomData([2, 4, 5, 5], 4);
const gradLse = randomData([2, 4, 5], 5);

const doubles = ({ data, shape }: Data) => ({ data: Float64Array.from(data), shape });

const dot = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Array.from(a).reduce((sum, x, n) => sum + x * (b[n] as number), 0);

interface Call {
  id: string;
  inputs: Record<string, Data>;
  params: RunParams;
}

/** sum(gradOutput * output) + sum(gradLse * lse) by the oracle. */
async function loss(call: Call, inputs: RunInputs, out: Data, lse?: Data): Promise<number> {
  const params = lse ? { ...call.params, returnLse: true } : call.params;
  const result = await heed.reference(call.id, inputs, params);
  return dot(result.output.data, out.data) + (lse ? dot(result.lse?.data ?? [], lse.data) : 0);
}

/** Compares each gradient along a random direction with the oracle's difference. */
async function expectGradients(call: Call, out: Data, lse?: Data): Promise<void> {
  const params = lse ? { ...call.params, returnLse: true } : call.params;
  const vjp = heed.run.vjp(call.id, call.inputs, params);
  const gradients = vjp.backward(out, lse);
  vjp.dispose();
  let seed = 50;
  for (const [name, gradient] of Object.entries(gradients)) {
    const input = doubles(call.inputs[name] as Data);
    expect(gradient.shape, name).toEqual(input.shape);
    const next = random(seed++);
    const direction = Float64Array.from({ length: size(input.shape) }, next);
    const moved = (step: number) => ({
      ...call.inputs,
      [name]: { ...input, data: input.data.map((x, n) => x + step * (direction[n] as number)) },
    });
    const up = await loss(call, moved(STEP), out, lse);
    const down = await loss(call, moved(-STEP), out, lse);
    const along = dot(gradient.data, direction);
    expect(Math.abs(along - (up - down) / (2 * STEP)), `${call.id}: ${name}`).toBeLessThan(
      2e-5 * (1 + dot(Array.from(gradient.data, Math.abs), direction.map(Math.abs))),
    );
  }
}

describe("heed.run.vjp", () => {
  it("matches differences of the reference", async () => {
    const bias = randomData([5, 7], 6);
    const sinks = randomData([4], 7);
    const alibiSlopes = randomData([4], 8);
    await expectGradients(
      { id: "scaled_dot_product", inputs: { q, k, v }, params: {} },
      gradOutput,
      gradLse,
    );
    await expectGradients(
      {
        id: "attention",
        inputs: { q, k, v, bias, sinks, alibiSlopes },
        params: { causal: true, queryOffset: 2, softcap: 2, scale: 0.7 },
      },
      gradOutput,
      gradLse,
    );
  });

  it("matches for biases by distance and forget gates", async () => {
    const bucketBias = randomData([6, 4], 11);
    const distanceBias = randomData([5], 12);
    const logGates = randomData([2, 4, 7], 13);
    logGates.data.forEach((x, n) => {
      logGates.data[n] = -0.01 - Math.abs(x);
    });
    await expectGradients(
      {
        id: "t5_relative",
        inputs: { q, k, v, bucketBias, distanceBias },
        params: { queryOffset: 1, bucketMaxDistance: 6 },
      },
      gradOutput,
      gradLse,
    );
    await expectGradients(
      { id: "forgetting", inputs: { q, k, v, logGates }, params: { queryOffset: 2 } },
      gradOutput,
      gradLse,
    );
  });

  it("matches for other scores and normalisers", async () => {
    const width = { data: Float32Array.of(0.8, 1.1, 1.5), shape: [3] };
    const temperature = { data: Float32Array.of(0.5, 1, 1.5, 2), shape: [4] };
    const scoreMatrix = randomData([3, 3], 9);
    const calls: Call[] = [
      { id: "gaussian", inputs: { q, k, v, width }, params: {} },
      { id: "kernel_regression", inputs: { q, k, v, width }, params: { kernel: "gaussian" } },
      { id: "cosine", inputs: { q, k, v, temperature }, params: {} },
      { id: "luong_general", inputs: { q, k, v, scoreMatrix }, params: {} },
      { id: "sigmoid", inputs: { q, k, v }, params: { dropout: { p: 0.3, seed: 4 } } },
      { id: "relu_squared", inputs: { q, k, v }, params: {} },
      { id: "top_k", inputs: { q, k, v }, params: { topK: 3 } },
      { id: "sparsemax", inputs: { q, k, v }, params: { softcap: 3 } },
      { id: "entmax15", inputs: { q, k, v }, params: {} },
      { id: "stick_breaking", inputs: { q, k, v }, params: {} },
    ];
    for (const call of calls) await expectGradients(call, gradOutput);
  });

  it("lists rows with a gradient as capabilities, and refuses the others by name", () => {
    const able = heed.mechanisms.filter(({ capabilities }) => capabilities.includes("gradient"));
    expect(able.length).toBeGreaterThan(15);
    expectError("unsupported", ["retention", "no gradient in this build"], () =>
      heed.run.vjp("retention", { q, k, v: k }),
    );
    expectError("unsupported", ["quest"], () => heed.run.vjp("quest", { q, k, v }));
    for (const option of [{ returnWeights: true }, { returnScores: "raw" }] as const) {
      const [name = ""] = Object.keys(option);
      expectError("unsupported", [`${name}: vjp`], () => heed.attention.vjp(q, k, v, option));
    }
    const table = randomData([5, 3], 19);
    const rows = {
      additive: {},
      shaw_relative: {},
      transformer_xl: { relativeKeys: table },
      disentangled: {},
      cope: { copeTable: table },
    };
    for (const [id, inputs] of Object.entries(rows)) {
      const { capabilities } = heed.mechanisms.find((row) => row.id === id) ?? {};
      expect(capabilities).not.toContain("gradient");
      expectError("unsupported", [`"${id}"`, "no gradient in this build", "heed/gradients"], () =>
        heed.run.vjp(id, { q, k, v, ...inputs }, { queryOffset: "end" }),
      );
    }
  });
});

describe("heed.attention.vjp", () => {
  it("returns what attention returns", () => {
    const options = { causal: true, queryOffset: "end", returnLse: true } as const;
    const expected = heed.attention(q, k, v, options);
    const vjp = heed.attention.vjp(q, k, v, options);
    expect(vjp.output.data).toEqual(expected.output.data);
    expect(vjp.output.shape).toEqual(expected.output.shape);
    expect(vjp.lse.data).toEqual(expected.lse.data);
    vjp.dispose();
    expect("lse" in heed.attention.vjp(q, k, v)).toBe(false);
  });

  it("gives gradients in the shapes and layouts of the inputs", () => {
    const swap = ({ data, shape: [b, h, l, d] }: Data): Data => {
      const [batch, heads, len, dim] = [b, h, l, d] as [number, number, number, number];
      const to = new Float32Array(data.length);
      for (let n = 0; n < data.length; n++) {
        const [x, i] = [n % dim, Math.floor(n / dim) % len];
        const [y, z] = [Math.floor(n / dim / len) % heads, Math.floor(n / dim / len / heads)];
        to[((z * len + i) * heads + y) * dim + x] = data[n] as number;
      }
      return { data: to, shape: [batch, len, heads, dim] };
    };
    const expected = heed.attention.vjp(q, k, v).backward(gradOutput);
    const swapped = heed.attention
      .vjp(swap(q), swap(k), swap(v), { layout: "blhd" })
      .backward(swap(gradOutput));
    for (const name of ["q", "k", "v"] as const) {
      const { data, shape } = swap(expected[name] as Data);
      expect(swapped[name].shape).toEqual(shape);
      expect(swapped[name].data).toEqual(data);
    }
    const one = (data: Data, shape: number[]) => ({ data: data.data.slice(0, size(shape)), shape });
    const flat = heed.attention
      .vjp(one(q, [5, 3]), one(k, [7, 3]), one(v, [7, 5]))
      .backward(one(gradOutput, [5, 5]));
    const deep = heed.attention
      .vjp(one(q, [1, 1, 5, 3]), one(k, [1, 1, 7, 3]), one(v, [1, 1, 7, 5]))
      .backward(one(gradOutput, [1, 1, 5, 5]));
    expect(flat.k.shape).toEqual([7, 3]);
    expect(flat.k.data).toEqual(deep.k.data);
  });

  it("keeps Tensors in the instance, and nothing after dispose", () => {
    const before = heed.memory();
    const tensors = [q, k, v].map(({ data, shape }) => heed.tensor(data, shape));
    const [tq, tk, tv] = tensors as [TensorArgument, TensorArgument, TensorArgument];
    const vjp = heed.attention.vjp(tq, tk, tv);
    const gradients = vjp.backward(gradOutput);
    const plain = heed.attention.vjp(q, k, v);
    expect(gradients.q.data).toEqual(plain.backward(gradOutput).q.data);
    plain.dispose();
    vjp.dispose();
    vjp.dispose();
    const results = [vjp.output, gradients.q, gradients.k, gradients.v];
    for (const tensor of [...tensors, ...results]) (tensor as { dispose(): void }).dispose();
    const after = heed.memory();
    expect([after.tensors, after.bytes]).toEqual([before.tensors, before.bytes]);
  });

  it("goes back as often as it is asked to, with the same bits", () => {
    const vjp = heed.attention.vjp(q, k, v, { returnLse: true });
    const first = vjp.backward(gradOutput, gradLse);
    vjp.backward(randomData([2, 4, 5, 5], 44));
    const again = vjp.backward(gradOutput, gradLse);
    expect(again.k.data).toEqual(first.k.data);
    vjp.dispose();
    expectError("disposed", ["backward", "disposed"], () => vjp.backward(gradOutput));
  });

  it("stores gradients as their inputs are stored", () => {
    const half = (data: Data) => ({
      data: Array.from(data.data),
      shape: data.shape,
      dtype: "bfloat16",
    });
    const vjp = heed.attention.vjp(half(q), k, v);
    const gradients = vjp.backward(gradOutput);
    expect([gradients.q.dtype, gradients.k.dtype]).toEqual(["bfloat16", "float32"]);
    vjp.dispose();
  });

  it("lets what is not finite reach only what sees it", () => {
    const wrong = { ...gradOutput, data: gradOutput.data.slice() };
    wrong.data[0] = Number.NaN; // query 0 of head 0, which sees keys 0 and 1
    const vjp = heed.attention.vjp(q, k, v, { causal: true, queryOffset: 1 });
    const [good, bad] = [vjp.backward(gradOutput), vjp.backward(wrong)];
    vjp.dispose();
    const lost = (name: "q" | "k" | "v") =>
      Array.from(bad[name].data, (x, n) => (Number.isNaN(x) ? n : -1)).filter((n) => n >= 0);
    expect(lost("q")).toEqual([0, 1, 2]);
    expect(lost("k")).toEqual([0, 1, 2, 3, 4, 5]);
    expect(lost("v")).toEqual([0, 5]); // one dimension of keys 0 and 1
    for (let n = 6; n < 42; n++) expect(bad.k.data[n]).toBe(good.k.data[n]);
  });

  it("refuses what does not fit", () => {
    const vjp = heed.attention.vjp(q, k, v);
    expectError("shape", ["gradOutput", "[2, 4, 5, 3]", "[2, 4, 5, 5]"], () => vjp.backward(q));
    expectError("option", ["gradLse", "returnLse"], () => vjp.backward(gradOutput, gradLse));
    expectError("option", ["gradOutput"], () => vjp.backward(undefined as never));
    vjp.dispose();
    const withLse = heed.attention.vjp(q, k, v, { returnLse: true });
    expectError("shape", ["gradLse"], () => withLse.backward(gradOutput, gradOutput));
    withLse.dispose();
    const relativeKeys = randomData([5, 3], 19);
    const relativeValues = randomData([5, 5], 20);
    const relativeQueries = randomData([8, 3], 22);
    const contentBias = randomData([4, 3], 21);
    const queryOffset = 1;
    const left = [
      ['score "additive"', { score: "additive" }],
      ["relativeKeys", { relativeKeys, queryOffset }],
      ["relativeValues", { relativeValues, queryOffset }],
      ["relativeQueries", { relativeQueries, relativeRows: "span", queryOffset }],
      ["contentBias", { contentBias }],
      ['normalize "cope"', { normalize: "cope", copeTable: relativeKeys }],
      ["kernel_sum", { score: "squared_distance", normalize: "kernel_sum", kernel: "boxcar" }],
      ["scoreMod", { scoreMod: "score * 2" }],
      ["probMod", { probMod: "prob * prob" }],
    ] as const;
    for (const [name, options] of left) {
      expectError("unsupported", [name, "heed/gradients has it"], () =>
        heed.attention.vjp(q, k, v, options),
      );
    }
    expectError("unsupported", ["returnWeights"], () =>
      heed.attention.vjp(q, k, v, { returnWeights: true }),
    );
    const tensor = heed.tensor(q.data, q.shape);
    const resident = heed.attention.vjp(tensor, k, v);
    tensor.dispose();
    expectError("disposed", ["q"], () => resident.backward(gradOutput));
    resident.dispose();
    resident.output.dispose();
  });
});

describe("heed/core", () => {
  it("says where gradients are", async () => {
    const core = await loadCore(ONE);
    expectError("unsupported", ["heed/core", '"heed" has them'], () => core.attention.vjp(q, k, v));
    expectError("unsupported", ["heed/core"], () => core.run.vjp("flash", { q, k, v }));
    core.dispose();
  });
});
