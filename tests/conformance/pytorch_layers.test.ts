import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Heed, load, type StateDict } from "heed";
import { beforeAll, describe, expect, it } from "vitest";

// What PyTorch computed with random weights: pytorch_layers.py wrote it.
interface Packed {
  shape: number[];
  data: number[];
}
interface AttentionCase {
  name: string;
  options: Record<string, number | boolean>;
  call: { key_lengths?: number[]; causal?: boolean; average_weights?: boolean };
  state: StateDict;
  query: Packed;
  key: Packed;
  value: Packed;
  output: Packed;
  weights: Packed;
}

interface EncoderCase {
  name: string;
  options: { nhead: number; norm_first?: boolean; activation?: string };
  key_lengths: number[];
  state: Record<string, Packed>;
  x: Packed;
  output: Packed;
}

const file = fileURLToPath(new URL("pytorch_layers.json", import.meta.url));
const cases = JSON.parse(readFileSync(file, "utf8")) as {
  attention: AttentionCase[];
  encoder: EncoderCase[];
};

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

const camelCase = (name: string): string =>
  name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

function expectNear(name: string, got: ArrayLike<number>, wanted: number[]): void {
  expect(got.length, name).toBe(wanted.length);
  // Both sides compute in float32, with sums of at most 12 terms near 1.
  const worst = Math.max(...wanted.map((value, i) => Math.abs((got[i] as number) - value)));
  expect(worst, name).toBeLessThan(2e-6);
}

describe("nn.MultiheadAttention", () => {
  it.each(cases.attention)("$name", (fixture) => {
    const renamed = Object.entries(fixture.options).map(([name, value]) => [
      camelCase(name),
      value,
    ]);
    const layer = new heed.MultiHeadAttention(Object.fromEntries(renamed));
    layer.loadStateDict(fixture.state);
    const { key_lengths: lengths, causal = false, average_weights: average = false } = fixture.call;
    const { output, weights } = layer.forward(fixture.query, fixture.key, fixture.value, {
      causal,
      averageWeights: average,
      returnWeights: true,
      ...(lengths ? { keyLengths: Int32Array.from(lengths) } : {}),
    });
    expect(output.shape).toEqual(fixture.output.shape);
    expect(weights.shape).toEqual(fixture.weights.shape);
    expectNear("output", output.data, fixture.output.data);
    expectNear("weights", weights.data, fixture.weights.data);
    layer.dispose();
  });
});

/** Rows [from, to) of a matrix or vector, as heads of `dims`. */
function rowsOf({ shape, data }: Packed, from: number, to: number, dims: number[]): Packed {
  const width = shape[1] ?? 1;
  return { data: data.slice(from * width, to * width), shape: dims };
}

describe("nn.TransformerEncoderLayer", () => {
  it.each(cases.encoder)("$name", ({ options, state, x, output, key_lengths: lengths }) => {
    const get = (name: string): Packed => state[name] as Packed;
    const [weight, bias] = [get("self_attn.in_proj_weight"), get("self_attn.in_proj_bias")];
    const dim = weight.shape[1] as number;
    const heads = [options.nhead, dim / options.nhead];
    const result = heed.run(
      "transformer_block",
      {
        x,
        wQ: rowsOf(weight, 0, dim, [...heads, dim]),
        wKSelf: rowsOf(weight, dim, 2 * dim, [...heads, dim]),
        wVSelf: rowsOf(weight, 2 * dim, 3 * dim, [...heads, dim]),
        wOSelf: { data: get("self_attn.out_proj.weight").data, shape: [dim, ...heads] },
        bQ: rowsOf(bias, 0, dim, heads),
        bK: rowsOf(bias, dim, 2 * dim, heads),
        bV: rowsOf(bias, 2 * dim, 3 * dim, heads),
        bOSelf: get("self_attn.out_proj.bias"),
        wUp: get("linear1.weight"),
        bUp: get("linear1.bias"),
        wDown: get("linear2.weight"),
        bDown: get("linear2.bias"),
        norm1Weight: get("norm1.weight"),
        norm1Bias: get("norm1.bias"),
        norm2Weight: get("norm2.weight"),
        norm2Bias: get("norm2.bias"),
        keyLengths: Int32Array.from(lengths),
      },
      {
        normOrder: options.norm_first ? "pre" : "post",
        activation: options.activation ?? "relu",
      },
    );
    expect(result.output.shape).toEqual(output.shape);
    expectNear("output", result.output.data, output.data);
  });
});
