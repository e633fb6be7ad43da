// The language model of the site: its files mean what the training meant.
import { readFileSync } from "node:fs";
import { load } from "heed/training";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeEncoder } from "../../language_model/bpe.mjs";
import facts from "../../web/language_model/facts.json";
import type { ModelClient } from "../../web/src/model/model_types.js";
import { openHere } from "./model_support.js";
import { root } from "./support.js";

const file = (name: string) => readFileSync(`${root}web/language_model/${name}`);
const json = (name: string) => JSON.parse(file(name).toString());
const { vocab, merges } = json("tokenizer.json").model;
const encode = makeEncoder({
  vocab: new Map<string, number>(Object.entries(vocab)),
  merges: merges.map((pair: string) => pair.split(" ")),
});
const { passage } = facts;
/** The mark that stands before every chapter, then the text. */
const ids: readonly number[] = [0, ...encode(passage.text)];

let client: ModelClient;
beforeAll(async () => {
  const [weights, tokenizer, config] = ["model.safetensors", "tokenizer.json", "config.json"].map(
    (name) => new Blob([file(name)]),
  );
  client = await openHere({ weights: weights as Blob, tokenizer, config });
});
afterAll(() => client.dispose());

const mean = (values: ArrayLike<number>) =>
  Array.from(values).reduce((sum, value) => sum + value, 0) / values.length;

/** Tensors by name, from the format's own words: a length, a JSON header, little-endian numbers. */
function tensors(): Map<string, Float64Array[]> {
  const bytes = file("model.safetensors");
  const end = 8 + Number(bytes.readBigUInt64LE(0));
  const { __metadata__, ...header } = JSON.parse(bytes.subarray(8, end).toString());
  return new Map(
    Object.entries<{ shape: number[]; data_offsets: [number, number] }>(header).map(
      ([name, { shape, data_offsets }]) => {
        const [rows, columns] =
          shape.length === 2 ? (shape as [number, number]) : [1, shape[0] ?? 0];
        const number = (at: number) => {
          const bits = bytes.readUInt16LE(end + data_offsets[0] + 2 * at);
          return new Float32Array(Uint32Array.of(bits << 16).buffer)[0] as number;
        };
        const row = (n: number) =>
          Float64Array.from({ length: columns }, (_, column) => number(n * columns + column));
        return [name, Array.from({ length: rows }, (_, n) => row(n))];
      },
    ),
  );
}

const dot = (a: Float64Array, b: Float64Array) => {
  let sum = 0;
  for (let n = 0; n < a.length; n++) sum += (a[n] as number) * (b[n] as number);
  return sum;
};

/** The loss of the passage in plain float64 loops, from the sizes of config.json alone. */
function plainLoss(): number {
  const config = json("config.json");
  const all = tensors();
  const matrix = (name: string) => all.get(name) as Float64Array[];
  const times = (name: string, x: Float64Array) =>
    Float64Array.from(matrix(`${name}.weight`), (row) => dot(row, x));
  const norm = (name: string, x: Float64Array) => {
    const scale = matrix(`${name}.weight`)[0] as Float64Array;
    const size = Math.sqrt(dot(x, x) / x.length + config.rms_norm_eps);
    return x.map((value, n) => (value / size) * (scale[n] as number));
  };
  const dim = config.hidden_size / config.num_attention_heads;
  const turn = (x: Float64Array, position: number) =>
    x.map((value, n) => {
      const pair = n % (dim / 2);
      const angle = position * config.rope_theta ** ((-2 * pair) / dim);
      const isFirst = n % dim < dim / 2;
      const other = x[isFirst ? n + dim / 2 : n - dim / 2] as number;
      return value * Math.cos(angle) + (isFirst ? -other : other) * Math.sin(angle);
    });
  const plus = (a: Float64Array, b: Float64Array) => a.map((value, n) => value + (b[n] as number));

  const embedding = matrix("model.embed_tokens.weight");
  let rows = ids.map((id) => embedding[id] as Float64Array);
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const name = `model.layers.${layer}`;
    const normed = rows.map((row) => norm(`${name}.input_layernorm`, row));
    const project = (part: string) => normed.map((row) => times(`${name}.self_attn.${part}`, row));
    const [q, k] = ["q_proj", "k_proj"].map((part) => project(part).map(turn));
    const v = project("v_proj");
    const heads = rows.map((row) => new Float64Array(row.length));
    for (let from = 0; from < config.hidden_size; from += dim) {
      const parts = (all: Float64Array[] = []) => all.map((x) => x.subarray(from, from + dim));
      const [queries, keys, values, output] = [q, k, v, heads].map(parts) as Float64Array[][];
      queries?.forEach((query, i) => {
        const seen = keys?.slice(0, i + 1) ?? [];
        const weights = seen.map((key) => Math.exp(dot(query, key) / Math.sqrt(dim)));
        const sum = weights.reduce((a, b) => a + b, 0);
        for (let n = 0; n < dim; n++)
          (output?.[i] as Float64Array)[n] = weights.reduce(
            (total, weight, j) => total + (weight / sum) * (values?.[j]?.[n] as number),
            0,
          );
      });
    }
    rows = rows.map((row, i) =>
      plus(row, times(`${name}.self_attn.o_proj`, heads[i] as Float64Array)),
    );
    rows = rows.map((row) => {
      const x = norm(`${name}.post_attention_layernorm`, row);
      const up = times(`${name}.mlp.up_proj`, x);
      const gate = times(`${name}.mlp.gate_proj`, x);
      const hidden = gate.map((value, n) => (value / (1 + Math.exp(-value))) * (up[n] as number));
      return plus(row, times(`${name}.mlp.down_proj`, hidden));
    });
  }
  const losses = rows.slice(0, -1).map((row, i) => {
    const x = norm("model.norm", row);
    const logits = embedding.map((token) => dot(token, x));
    const sum = logits.reduce((total, logit) => total + Math.exp(logit), 0);
    return Math.log(sum) - (logits[ids[i + 1] as number] as number);
  });
  return mean(losses);
}

test("the page reads a text as the training did", async () => {
  expect(ids).toHaveLength(passage.tokens);
  expect((await client.encode(passage.text)).ids).toEqual(ids);
  expect(await client.decode(ids)).toBe(passage.text);
  for (const text of ["", "  two  spaces\n\nand “quotes”, 1611 é", "LORD'S\t"]) {
    expect((await client.encode(text)).ids).toEqual([0, ...encode(text)]);
    expect(await client.decode(encode(text))).toBe(text);
  }
});

test("plain loops over the file give the loss that the training noted", () => {
  expect(Math.abs(plainLoss() - passage.loss)).toBeLessThan(1e-5);
});

test("so does the engine of the page", async () => {
  const { losses } = await client.run({ ids, topK: 0 });
  expect(Math.abs(mean(losses) - passage.loss)).toBeLessThan(1e-5);
  expect(client.facts.numParameters).toBe(facts.model.parameters);
  expect(client.facts.contextLength).toBe(facts.model.context);
});

test("so does the training kit, which opens the file by its metadata", async () => {
  const training = await load({ threads: 1 });
  const model = training.loadTransformer(file("model.safetensors"));
  const { data } = model.predict({ tokens: [...ids] });
  const { vocabulary } = facts.model;
  const losses = ids.slice(1).map((next, i) => {
    const row = data.subarray(i * vocabulary, (i + 1) * vocabulary);
    const sum = row.reduce((total, logit) => total + Math.exp(logit), 0);
    return Math.log(sum) - (row[next] as number);
  });
  expect(Math.abs(mean(losses) - passage.loss)).toBeLessThan(1e-5);
  training.dispose();
});

test("what the page says of it follows from what was measured", () => {
  const { result, heldOut, training, train, model } = facts;
  expect(result.heldOutPerplexity).toBeCloseTo(Math.exp(result.heldOutLoss), 6);
  const bits = (result.heldOutLoss * heldOut.tokens) / (heldOut.bytes * Math.LN2);
  expect(result.heldOutBitsPerByte).toBeCloseTo(bits, 6);
  const tokens = training.steps * training.batch * model.context;
  expect(training.epochs).toBeCloseTo(tokens / train.tokens, 6);
  // Better than any guess that does not read: all tokens alike.
  expect(result.heldOutLoss).toBeLessThan(Math.log(model.vocabulary) / 2);
});
