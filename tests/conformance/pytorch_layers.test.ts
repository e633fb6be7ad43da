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
  options: {
    d_model: number;
    nhead: number;
    dim_feedforward: number;
    norm_first?: boolean;
    activation?: "gelu";
  };
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

describe("nn.TransformerEncoderLayer", () => {
  it.each(cases.encoder)("$name", ({ options, state, x, output, key_lengths: lengths }) => {
    const block = new heed.TransformerBlock({
      embedDim: options.d_model,
      numHeads: options.nhead,
      ffDim: options.dim_feedforward,
      normOrder: options.norm_first ? "pre" : "post",
      activation: options.activation ?? "relu",
    });
    block.loadStateDict(state);
    const result = block.forward(x, { keyLengths: Int32Array.from(lengths) });
    expect(result.output.shape).toEqual(output.shape);
    expectNear("output", result.output.data, output.data);
    block.dispose();
  });
});
