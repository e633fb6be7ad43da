// The site's runs of GPT-2 and Llama files beside plain float64 loops.
import { load } from "heed";
import { describe, expect, test } from "vitest";
import type { ModelClient, RunResult } from "../../web/src/model/model_types.js";
import {
  asBFloat16,
  asFloat16,
  bfloat16,
  float16,
  float32,
  gpt2Numbers,
  jsonBlob,
  llamaNumbers,
  type Numbers,
  type Sizes,
  safetensors,
  tensorsOf,
} from "./model_files.js";
import { type Choices, gpt2Reference, llamaReference, type Reference } from "./model_reference.js";
import { openHere } from "./model_support.js";

const GPT2: Sizes = {
  layers: 2,
  heads: 3,
  kvHeads: 3,
  headDim: 8,
  embed: 24,
  hidden: 40,
  vocab: 61,
  positions: 32,
};
const LLAMA: Sizes = { ...GPT2, heads: 4, kvHeads: 2, headDim: 6, embed: 20, vocab: 53 };
const IDS = [7, 3, 3, 50, 12, 0, 44, 7, 3, 21, 9];
/** Relative to the largest log probability. */
const TOLERANCE = 1e-4;
const EPSILON = 1e-5;

const gpt2Config = jsonBlob({ model_type: "gpt2", n_head: 3, layer_norm_epsilon: EPSILON });
const llamaConfig = (more: object = {}) =>
  jsonBlob({
    model_type: "llama",
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 6,
    rms_norm_eps: EPSILON,
    rope_theta: 500,
    max_position_embeddings: 64,
    ...more,
  });

const logSoftmax = (logits: number[]): number[] => {
  const top = Math.max(...logits);
  const sum = logits.reduce((all, logit) => all + Math.exp(logit - top), 0);
  return logits.map((logit) => logit - top - Math.log(sum));
};

function expectLogits(result: RunResult, { logits }: Reference, ids: number[]): void {
  const { topK, topIds, topProbabilities, losses } = result;
  logits.forEach((row, at) => {
    const wanted = logSoftmax(row);
    const bound = TOLERANCE * Math.max(...wanted.map(Math.abs));
    const seen = new Set<number>();
    for (let rank = 0; rank < topK; rank++) {
      const id = topIds[at * topK + rank] as number;
      const found = Math.log(topProbabilities[at * topK + rank] as number);
      expect(Math.abs(found - (wanted[id] as number)), `token ${at}, id ${id}`).toBeLessThan(bound);
      seen.add(id);
    }
    expect(seen.size).toBe(topK);
    if (at + 1 < ids.length) {
      const loss = losses[at] as number;
      expect(Math.abs(loss + (wanted[ids[at + 1] as number] as number))).toBeLessThan(bound);
    }
  });
}

function expectHeads(result: RunResult, { weights }: Reference, heads: number): void {
  const { len } = result;
  for (const { layer, weights: found, mean } of result.heads) {
    expect(found).toHaveLength(heads * len * len);
    expect(mean).toHaveLength(len * len);
    mean.forEach((share, at) => {
      const own = Array.from(
        { length: heads },
        (_, head) => found[head * len * len + at] as number,
      );
      expect(Math.abs(share - own.reduce((a, b) => a + b) / heads)).toBeLessThan(1e-6);
    });
    for (let n = 0; n < found.length; n++) {
      const [head, row, key] = [Math.floor(n / len / len), Math.floor(n / len) % len, n % len];
      const wanted = weights[layer]?.[head]?.[row]?.[key] as number;
      expect(
        Math.abs((found[n] as number) - wanted),
        `${layer} ${head} ${row} ${key}`,
      ).toBeLessThan(1e-5);
    }
  }
}

async function expectReference(
  client: ModelClient,
  truth: Reference,
  sizes: Sizes,
  choices: Choices,
) {
  const pruned = choices.pruned ?? [];
  const result = await client.run({ ids: IDS, heads: "all", topK: sizes.vocab, pruned });
  expect(result.heads.map(({ layer }) => layer)).toEqual([0, 1]);
  expectLogits(result, truth, IDS);
  expectHeads(result, truth, sizes.heads);
}

const CASES: [string, Choices, Record<string, unknown>][] = [
  ["plain", { epsilon: EPSILON, ropeBase: 500 }, {}],
  [
    "pruned",
    {
      epsilon: EPSILON,
      ropeBase: 500,
      pruned: [
        { layer: 0, head: 2 },
        { layer: 1, head: 0 },
      ],
    },
    {},
  ],
];

describe("GPT-2", () => {
  const numbers = gpt2Numbers(GPT2);
  test.each(CASES)("logits, losses and heads, %s", async (_, choices) => {
    for (const prefix of ["", "transformer."]) {
      const file = safetensors(tensorsOf(numbers, float32, (name) => prefix + name));
      const client = await openHere({ weights: file, config: gpt2Config });
      await expectReference(client, gpt2Reference(numbers, GPT2, IDS, choices), GPT2, choices);
      client.dispose();
    }
  });

  test("a head of its own, masks of old files, and 16-bit weights at odd places", async () => {
    for (const [store, round] of [
      [bfloat16, asBFloat16],
      [float16, asFloat16],
    ] as const) {
      const own = gpt2Numbers(GPT2, 5, round);
      const head = gpt2Numbers({ ...GPT2, vocab: GPT2.vocab }, 99, round).get("wte.weight");
      own.set("lm_head.weight", head as { shape: number[]; data: Float32Array });
      const mask = { dtype: "U8", shape: [1, 1, 3], bytes: new Uint8Array(3) };
      const tensors = new Map([["h.0.attn.bias", mask] as const, ...tensorsOf(own, store)]);
      const client = await openHere({ weights: safetensors(tensors), config: gpt2Config });
      const choices = { epsilon: EPSILON };
      await expectReference(client, gpt2Reference(own, GPT2, IDS, choices), GPT2, choices);
      client.dispose();
    }
  });

  test("heads are 64 wide where no file says otherwise", async () => {
    const sizes = { ...GPT2, heads: 2, kvHeads: 2, headDim: 64, embed: 128 };
    const own = gpt2Numbers(sizes, 3);
    const client = await openHere({ weights: safetensors(tensorsOf(own)) });
    expect(client.facts).toMatchObject({ style: "gpt2", numHeads: 2, headDim: 64, vocabSize: 61 });
    await expectReference(client, gpt2Reference(own, sizes, IDS, { epsilon: 1e-5 }), sizes, {
      epsilon: 1e-5,
    });
    client.dispose();
  });
});

describe("Llama", () => {
  const variants: [string, Numbers, object, Partial<Choices>][] = [
    ["grouped heads", llamaNumbers(LLAMA), {}, {}],
    [
      "tied, with biases",
      llamaNumbers(LLAMA, { biases: true, tied: true }),
      { model_type: "qwen2" },
      {},
    ],
    [
      "a window of 3",
      llamaNumbers(LLAMA),
      { model_type: "mistral", sliding_window: 3 },
      { window: 3 },
    ],
    [
      "positions stretched by 4",
      llamaNumbers(LLAMA),
      { rope_scaling: { type: "linear", factor: 4 } },
      { rescale: (frequency) => frequency / 4 },
    ],
    [
      "Llama 3's scaling",
      llamaNumbers(LLAMA),
      {
        rope_theta: null,
        rope_parameters: {
          rope_type: "llama3",
          rope_theta: 500,
          factor: 8,
          low_freq_factor: 1,
          high_freq_factor: 4,
          original_max_position_embeddings: 64,
        },
      },
      { rescale: llama3 },
    ],
  ];

  /** As in Meta's code, for 64 positions, factors 8, 1 and 4. */
  function llama3(frequency: number): number {
    const wavelength = (2 * Math.PI) / frequency;
    if (wavelength < 64 / 4) return frequency;
    if (wavelength > 64) return frequency / 8;
    const smooth = (64 / wavelength - 1) / (4 - 1);
    return ((1 - smooth) * frequency) / 8 + smooth * frequency;
  }

  test.each(variants)("%s", async (_, numbers, more, special) => {
    for (const [, given] of CASES) {
      const choices = { ...given, ...special };
      const file = safetensors(tensorsOf(numbers));
      const client = await openHere({ weights: file, config: llamaConfig(more) });
      await expectReference(client, llamaReference(numbers, LLAMA, IDS, choices), LLAMA, choices);
      client.dispose();
    }
  });

  test("numbers may stand in the file's metadata", async () => {
    const numbers = llamaNumbers(LLAMA);
    const metadata = {
      format: "pt",
      num_attention_heads: "4",
      rope_theta: "500",
      rms_norm_eps: "1e-5",
    };
    const client = await openHere({ weights: safetensors(tensorsOf(numbers), metadata) });
    expect(client.facts).toEqual({
      style: "llama",
      numLayers: 2,
      numHeads: 4,
      numKvHeads: 2,
      headDim: 6,
      embedDim: 20,
      vocabSize: 53,
      contextLength: null,
      numParameters: [...numbers.values()].reduce((sum, { data }) => sum + data.length, 0),
      dtype: "F32",
      hasTokenizer: false,
      endTokens: [],
    });
    const choices = { epsilon: EPSILON, ropeBase: 500 };
    await expectReference(client, llamaReference(numbers, LLAMA, IDS, choices), LLAMA, choices);
    client.dispose();
  });
});

describe("generation", () => {
  const numbers = llamaNumbers(LLAMA, {}, 17);
  const open = () => openHere({ weights: safetensors(tensorsOf(numbers)), config: llamaConfig() });

  test("each token and its attention are those of the whole sequence computed again", async () => {
    const client = await open();
    const ids = IDS.slice(0, 4);
    const pruned = [{ layer: 1, head: 3 }];
    for await (const token of client.generate({ ids, maxTokens: 9, temperature: 0, pruned })) {
      const choices = { epsilon: EPSILON, ropeBase: 500, pruned };
      const { logits, weights } = llamaReference(numbers, LLAMA, ids, choices);
      const last = logSoftmax(logits.at(-1) as number[]);
      expect(token.id).toBe(last.indexOf(Math.max(...last)));
      expect(token.position).toBe(ids.length);
      expect(Math.abs(Math.log(token.probability) - (last[token.id] as number))).toBeLessThan(1e-3);
      const rows = weights.flatMap((layer) => layer.flatMap((head) => head.at(-1) as number[]));
      expect(token.attention).toHaveLength(2 * 4 * ids.length);
      rows.forEach((weight, at) => {
        expect(Math.abs((token.attention[at] as number) - weight)).toBeLessThan(1e-5);
      });
      ids.push(token.id);
    }
    expect(ids).toHaveLength(13);
    client.dispose();
  });

  test("a seed draws the same tokens, by the model's probabilities", async () => {
    const client = await open();
    const draw = async (seed: number, more: object) => {
      const ids: number[] = [];
      for await (const { id } of client.generate({ ids: IDS, maxTokens: 12, seed, ...more }))
        ids.push(id);
      return ids;
    };
    expect(await draw(1, { temperature: 2 })).toEqual(await draw(1, { temperature: 2 }));
    expect(await draw(1, { temperature: 2 })).not.toEqual(await draw(2, { temperature: 2 }));
    expect(await draw(3, { topK: 1 })).toEqual(await draw(4, { temperature: 0 }));
    // The first token of many seeds: how often each comes is what the model gives it.
    const counts = new Map<number, number>();
    for (let seed = 0; seed < 400; seed++)
      for await (const { id } of client.generate({ ids: IDS, maxTokens: 1, seed, topK: 3 }))
        counts.set(id, (counts.get(id) ?? 0) + 1);
    const { topIds, topProbabilities } = await client.run({ ids: IDS, topK: 3 });
    const [ids, probabilities] = [topIds.slice(-3), topProbabilities.slice(-3)];
    const sum = probabilities.reduce((a, b) => a + b);
    ids.forEach((id, rank) => {
      const share = (probabilities[rank] as number) / sum;
      const deviation = Math.sqrt(share * (1 - share) * 400);
      expect(Math.abs((counts.get(id) ?? 0) - share * 400)).toBeLessThan(4 * deviation + 1);
    });
    expect([...counts.keys()].every((id) => ids.includes(id))).toBe(true);
    client.dispose();
  });

  test("ends with the model's end token and frees its memory", async () => {
    const client = await open();
    const first = (await client.generate({ ids: IDS, maxTokens: 1, temperature: 0 }).next()).value;
    client.dispose();
    const config = llamaConfig({ eos_token_id: [first?.id] });
    // An instance of its own: what the collector finds of other tests must not count.
    const own = await load({ threads: 1 });
    const files = { weights: safetensors(tensorsOf(numbers)), config };
    const ending = await openHere(files, {}, own);
    const ids: number[] = [];
    const { tensors } = own.memory();
    for await (const { id } of ending.generate({ ids: IDS, maxTokens: 20, temperature: 0 })) {
      ids.push(id);
      expect(own.memory().tensors).toBe(tensors + 2 * LLAMA.layers);
    }
    await ending.run({ ids: IDS, heads: [1] });
    expect(ids).toEqual([first?.id]);
    expect(own.memory().tensors).toBe(tensors);
    ending.dispose();
  });
});
