// Small problems on which libraries differ. What peers do is quoted from where it is written or was
// seen; what heed does is computed when the page is opened.

import { floats } from "../lib/call.js";
import type { ExampleParams, ExampleTensor } from "../lib/example.js";
import { t } from "../lib/messages.js";
import { fillWith, plainWeights, type Scores } from "./plain.js";

export interface Peer {
  who: string;
  does: string;
  source: { text: string; href?: string };
}

export interface Variant {
  name: string;
  inputs: Readonly<Record<string, ExampleTensor>>;
  params: ExampleParams;
}

/** What the formula gives when it is written down as it stands, in plain loops. */
export interface Plain {
  name: string;
  /** [queries, keys] */
  weights: (variant: Variant) => Scores;
}

export interface EdgeCase {
  id: string;
  title: string;
  question: string;
  /** What heed does, and why, in a sentence or two. */
  rule: string;
  /** One, or some of which the visitor picks. */
  variants: readonly [Variant, ...Variant[]];
  /** What is shown of heed's answer. */
  shows: readonly ("weights" | "output" | "lse")[];
  plain?: readonly Plain[];
  peers: readonly Peer[];
}

const issue = (repository: string, number: number) => ({
  text: `${repository.split("/")[1]}#${number}`,
  href: `https://github.com/${repository}/issues/${number}`,
});
const TORCH = "pytorch/pytorch";
const FLASH = "Dao-AILab/flash-attention";
const ONNX = "onnx/onnx";
const seen = { text: t`seen in onnxruntime-web 1.30.0` };

const keepOf = (rows: readonly (readonly number[])[]): ExampleTensor => ({
  data: Uint8Array.from(rows.flat()),
  shape: [rows.length, rows[0]?.length ?? 0],
});

/** One dimension, scale 1: the score of a pair is the product of two numbers. */
function scored(queries: readonly number[], keys: readonly number[], values: readonly number[]) {
  return {
    q: floats(queries, [1, 1, queries.length, 1]),
    k: floats(keys, [1, 1, keys.length, 1]),
    v: floats(values, [1, 1, values.length, 1]),
  };
}

const UNIT: ExampleParams = { scale: 1 };

const FILLS: readonly Plain[] = [-1e4, -1e9].map((fill) => ({
  name: t`score + (${fill === -1e4 ? "−10 000" : "−10⁹"}) where hidden`,
  weights: (variant) => plainWeights(variant, fillWith(fill)),
}));

const emptyRow: EdgeCase = {
  id: "empty_row",
  title: t`A query with no key`,
  question: t`The second query may attend to nothing. What is its output?`,
  rule: t`Output 0, weights 0, lse −∞, every gradient 0: decided by the mask, never by the size of a score.`,
  variants: [
    {
      name: t`two queries, three keys`,
      inputs: {
        ...scored([1, 1], [0, 1, 2], [1, 2, 3]),
        keep: keepOf([
          [1, 1, 0],
          [0, 0, 0],
        ]),
      },
      params: UNIT,
    },
  ],
  shows: ["weights", "output", "lse"],
  plain: [
    {
      name: t`the formula, −∞ where hidden`,
      weights: (variant) => plainWeights(variant, fillWith(-Infinity)),
    },
    ...FILLS,
  ],
  peers: [
    {
      who: t`PyTorch 2.5 and newer`,
      does: "0",
      source: { text: "pytorch PR 133882", href: `https://github.com/${TORCH}/pull/133882` },
    },
    { who: t`PyTorch before 2.5`, does: "NaN", source: issue(TORCH, 103963) },
    {
      who: t`FlashAttention 2, 3, 4`,
      does: t`0; its lse is +∞ in version 2 without splits, −∞ with splits and in 3 and 4`,
      source: { text: "softmax.h, hopper/softmax.h, cute/softmax.py" },
    },
    {
      who: t`ONNX Attention`,
      does: t`0, since the errata of June 2026`,
      source: { text: "onnx PR 8068", href: `https://github.com/${ONNX}/pull/8068` },
    },
    {
      who: "JAX, xla",
      does: t`the mean of all values: it fills with −0.7 × the largest float`,
      source: { text: "jax/_src/nn/functions.py" },
    },
    {
      who: t`onnxruntime MultiHeadAttention`,
      does: t`nearly what no mask gives: it adds −10 000`,
      source: seen,
    },
    {
      who: t`Keras`,
      does: t`subtracts 10⁹ and asks that every row keep a key`,
      source: { text: t`Keras documentation` },
    },
    {
      who: "MLX",
      does: t`0, since PR 2608`,
      source: { text: "mlx PR 2608", href: "https://github.com/ml-explore/mlx/pull/2608" },
    },
  ],
};

const lengthsInputs = scored([0, 0], [0, 0, 0, 0, 0], [1, 2, 3, 4, 5]);

const unequal: EdgeCase = {
  id: "unequal_lengths",
  title: t`Causal, with two queries and five keys`,
  question: t`Which keys is the first query’s past: does the triangle start at the first key, or end at the last?`,
  rule: t`It has to be said: queryOffset 0 or "end". Without it heed refuses, naming both. A KV cache supplies it.`,
  variants: [
    {
      name: "queryOffset: 0",
      inputs: lengthsInputs,
      params: { ...UNIT, causal: true, queryOffset: 0 },
    },
    {
      name: 'queryOffset: "end"',
      inputs: lengthsInputs,
      params: { ...UNIT, causal: true, queryOffset: "end" },
    },
    { name: t`not said`, inputs: lengthsInputs, params: { ...UNIT, causal: true } },
  ],
  shows: ["weights", "output"],
  peers: [
    { who: t`PyTorch is_causal`, does: t`starts at the first key`, source: issue(TORCH, 108108) },
    {
      who: t`JAX, Keras MultiHeadAttention`,
      does: t`start at the first key`,
      source: { text: t`tril in their sources, August 2026` },
    },
    {
      who: t`FlashAttention 2.1 and newer`,
      does: t`ends at the last key`,
      source: issue(FLASH, 517),
    },
    {
      who: t`FlashInfer, x-transformers`,
      does: t`end at the last key`,
      source: { text: t`their sources, August 2026` },
    },
    {
      who: "MLX",
      does: t`ends at the last key; before PR 2967 it depended on which is longer`,
      source: { text: "mlx PR 2967", href: "https://github.com/ml-explore/mlx/pull/2967" },
    },
    {
      who: t`ONNX Attention`,
      does: t`an offset: the length of the past, else 0`,
      source: issue(ONNX, 8054),
    },
    {
      who: t`onnxruntime MultiHeadAttention, unidirectional`,
      does: t`leaves the last of two queries unmasked`,
      source: seen,
    },
  ],
};

const windowInputs = scored([0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1, 2, 3, 4, 5]);

const windowOfTwo: EdgeCase = {
  id: "window",
  title: t`A window of 2`,
  question: t`Does the query itself count, or are there two keys before it?`,
  rule: t`window { left: 2 } counts keys before the query and excludes it; lastN(2), which is { left: 1, right: 0 }, includes it.`,
  variants: [
    {
      name: "{ left: 2, right: 0 }",
      inputs: windowInputs,
      params: { ...UNIT, windowLeft: 2, windowRight: 0 },
    },
    { name: "lastN(2)", inputs: windowInputs, params: { ...UNIT, windowLeft: 1, windowRight: 0 } },
    {
      name: "{ left: 0, right: 0 }",
      inputs: windowInputs,
      params: { ...UNIT, windowLeft: 0, windowRight: 0 },
    },
  ],
  shows: ["weights"],
  peers: [
    {
      who: t`FlashAttention, FlashInfer, JAX`,
      does: t`exclude the query: three keys`,
      source: { text: t`their sources, August 2026` },
    },
    {
      who: t`ONNX Attention, opset 25`,
      does: t`excludes the query: three keys`,
      source: { text: "onnx/backend/test/case/node/attention.py" },
    },
    {
      who: t`Keras sliding_window`,
      does: t`includes the query: two keys`,
      source: { text: t`Keras sources, August 2026` },
    },
    {
      who: t`Hugging Face transformers, eager`,
      does: t`includes the query: two keys`,
      source: issue("huggingface/transformers", 39408),
    },
    {
      who: t`xFormers make_local_attention`,
      does: t`includes the query: two keys`,
      source: { text: t`xFormers sources, April 2026` },
    },
    {
      who: t`onnxruntime GroupQueryAttention`,
      does: t`local_window_size includes it; its documentation says left_window_size`,
      source: seen,
    },
  ],
};

const poison: EdgeCase = {
  id: "poison",
  title: t`NaN behind a mask`,
  question: t`The third key and value are not a number, and no query may see them. Does it matter?`,
  rule: t`What is masked cannot matter: hidden keys and values are selected away, not multiplied by 0, forward and backward.`,
  variants: [
    {
      name: t`NaN in key and value 3`,
      inputs: {
        ...scored([1, 1], [0, 1, Number.NaN], [1, 2, Number.NaN]),
        keep: keepOf([
          [1, 1, 0],
          [1, 0, 0],
        ]),
      },
      params: UNIT,
    },
  ],
  shows: ["weights", "output"],
  plain: [
    {
      name: t`score + (−∞) where hidden, without a selection`,
      weights: (variant) =>
        plainWeights(variant, (score, visible) => score + (visible ? 0 : -Infinity)),
    },
  ],
  peers: [
    { who: t`PyTorch`, does: t`NaN where a mask is added: 0 × NaN`, source: issue(TORCH, 101967) },
    {
      who: t`ONNX Attention`,
      does: t`has a test in which poison must stay behind the mask`,
      source: { text: "test_attention_4d_softcap_neginf_mask_poison" },
    },
  ],
};

const huge: EdgeCase = {
  id: "huge_logits",
  title: t`Logits of 1e30`,
  question: t`e to the power of 1e30 is no float. What are the weights?`,
  rule: t`The largest score is subtracted first, so the largest gets what is left of 1 and nothing overflows; equal scores share.`,
  variants: [
    { name: t`one is larger`, inputs: scored([1], [1e30, 1, -1e30], [1, 2, 3]), params: UNIT },
    { name: t`two are equal`, inputs: scored([1], [1e30, 1e30, -1e30], [1, 2, 3]), params: UNIT },
  ],
  shows: ["weights", "output", "lse"],
  plain: [
    {
      name: t`the formula without the maximum`,
      weights: (variant) => plainWeights(variant, (score) => score, "as written"),
    },
  ],
  peers: [],
};

const softNumber: EdgeCase = {
  id: "mask_as_number",
  title: t`A mask that is only a number`,
  question: t`The visible scores are −20 000 and the hidden one is 0. Who gets the weight?`,
  rule: t`A mask is no number: a hidden key has weight 0 whatever the scores are.`,
  variants: [
    {
      name: t`scores ${"−20 000"} and ${0}`,
      inputs: { ...scored([1], [-20_000, -20_000, 0], [1, 2, 3]), keep: keepOf([[1, 1, 0]]) },
      params: UNIT,
    },
    {
      name: t`scores ${"−3 × 10⁹"} and ${0}`,
      inputs: { ...scored([1], [-3e9, -3e9, 0], [1, 2, 3]), keep: keepOf([[1, 1, 0]]) },
      params: UNIT,
    },
  ],
  shows: ["weights", "output"],
  plain: FILLS,
  peers: [
    { who: t`onnxruntime MultiHeadAttention`, does: t`adds −10 000 where hidden`, source: seen },
    {
      who: t`Keras`,
      does: t`subtracts 10⁹ where hidden`,
      source: { text: t`Keras documentation` },
    },
  ],
};

const capped: EdgeCase = {
  id: "softcap_order",
  title: t`A softcap and a mask`,
  question: t`Is the score capped before it is hidden, or after?`,
  rule: t`Scale, softcap, bias, mask, normalise: in this order, so that no hidden key comes back.`,
  variants: [
    {
      name: "softcap 2",
      inputs: { ...scored([1], [1, 2, 3], [1, 2, 3]), keep: keepOf([[1, 1, 0]]) },
      params: { ...UNIT, softcap: 2 },
    },
  ],
  shows: ["weights", "output"],
  plain: [
    {
      name: t`capped after the mask: −∞ becomes −2`,
      weights: (variant) =>
        plainWeights(variant, (score, visible) => 2 * Math.tanh((visible ? score : -Infinity) / 2)),
    },
  ],
  peers: [
    {
      who: t`FlashAttention, FlashInfer, ggml, onnxruntime`,
      does: t`cap first`,
      source: { text: t`their sources, August 2026` },
    },
    {
      who: t`ONNX since April 2026`,
      does: t`caps first`,
      source: { text: "onnx PR 7867", href: `https://github.com/${ONNX}/pull/7867` },
    },
    {
      who: t`ONNX before`,
      does: t`capped after the mask: probability leaked to hidden keys`,
      source: issue(ONNX, 7865),
    },
  ],
};

const grouped: EdgeCase = {
  id: "grouped_heads",
  title: t`Four query heads, two key-value heads`,
  question: t`The values of the first key-value head are 1, those of the second 2. Which one does each query head read?`,
  rule: t`Interleaved: query head h reads key-value head floor(h / 2), so neighbours share.`,
  variants: [
    {
      name: t`four heads over two`,
      inputs: {
        q: floats([0, 0, 0, 0], [1, 4, 1, 1]),
        k: floats([0, 0], [1, 2, 1, 1]),
        v: floats([1, 2], [1, 2, 1, 1]),
      },
      params: UNIT,
    },
  ],
  shows: ["output"],
  peers: [
    {
      who: t`PyTorch, FlashAttention, JAX and most others`,
      does: "interleaved: 1 1 2 2",
      source: { text: t`their sources, August 2026` },
    },
    {
      who: t`ONNX reference before September 2025`,
      does: "tiled: 1 2 1 2",
      source: { text: "onnx PR 7274", href: `https://github.com/${ONNX}/pull/7274` },
    },
    {
      who: t`jax-js before August 2026`,
      does: "tiled: 1 2 1 2",
      source: { text: "jax-js PR 180", href: "https://github.com/ekzhang/jax-js/pull/180" },
    },
  ],
};

const zeroScale: EdgeCase = {
  id: "zero_scale",
  title: t`A scale of 0`,
  question: t`Is 0 a scale, or does it mean the default?`,
  rule: t`0 is a legal scale: every visible key weighs alike. Absent means 1 / √d. What is not finite is refused.`,
  variants: [
    { name: "scale: 0", inputs: scored([1], [0, 1, 2], [1, 2, 3]), params: { scale: 0 } },
    { name: t`absent`, inputs: scored([1], [0, 1, 2], [1, 2, 3]), params: {} },
    {
      name: "scale: NaN",
      inputs: scored([1], [0, 1, 2], [1, 2, 3]),
      params: { scale: Number.NaN },
    },
  ],
  shows: ["weights"],
  peers: [
    {
      who: t`ONNX and onnxruntime LinearAttention`,
      does: t`0.0 means the default`,
      source: { text: t`operator documentation, opset 27` },
    },
    {
      who: t`Keras Attention, Luong`,
      does: t`no scale at all unless asked for`,
      source: { text: t`Keras documentation` },
    },
  ],
};

export const CASES: readonly EdgeCase[] = [
  emptyRow,
  unequal,
  windowOfTwo,
  poison,
  huge,
  softNumber,
  capped,
  grouped,
  zeroScale,
];
