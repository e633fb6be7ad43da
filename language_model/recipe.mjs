// What the model of the site is and how it is trained: every number that the command does not take.

export const RECIPE = {
  vocabulary: 2048,
  /** Tokens a window: as far as the model ever looks back. */
  context: 256,
  model: { embedDim: 128, numLayers: 4, numHeads: 4, ffDim: 352 },
  optimizer: {
    learningRate: 2.5e-3,
    lastLearningRate: 0,
    /** Of all steps. */
    warmup: 0.04,
    weightDecay: 0.1,
    beta2: 0.99,
  },
  /** Windows a step. */
  batch: 2,
  steps: 5500,
  evaluateEvery: 550,
  seed: 1,
};

/** The flags of heed-language-model. */
export function flagsOf({ model, optimizer, context, batch, evaluateEvery, seed }, steps) {
  return {
    "embed-dim": model.embedDim,
    layers: model.numLayers,
    heads: model.numHeads,
    "ff-dim": model.ffDim,
    context,
    batch,
    "learning-rate": optimizer.learningRate,
    "last-learning-rate": optimizer.lastLearningRate,
    steps,
    warmup: Math.floor(optimizer.warmup * steps),
    "weight-decay": optimizer.weightDecay,
    beta2: optimizer.beta2,
    "evaluate-every": evaluateEvery,
    seed,
  };
}

/** The weights as any program that knows Llama reads them. `mark` is the id between sections. */
export function configJson({ model, context }, vocabulary, mark) {
  return {
    architectures: ["LlamaForCausalLM"],
    model_type: "llama",
    vocab_size: vocabulary,
    hidden_size: model.embedDim,
    intermediate_size: model.ffDim,
    num_hidden_layers: model.numLayers,
    num_attention_heads: model.numHeads,
    num_key_value_heads: model.numHeads,
    max_position_embeddings: context,
    hidden_act: "silu",
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    attention_bias: false,
    mlp_bias: false,
    tie_word_embeddings: true,
    bos_token_id: mark,
    eos_token_id: mark,
    torch_dtype: "bfloat16",
  };
}

/**
 * The first lines of a section that is held out, as many as one window takes; the first of all where
 * even that is too long. Its loss is what a reader of the files can check.
 */
export function passageOf(section, idsOf, context) {
  const lines = section.text.split("\n");
  let count = 1;
  const textOf = (n) => lines.slice(0, n).join("\n");
  while (count < lines.length && idsOf(textOf(count + 1)).length <= context) ++count;
  const text = textOf(count);
  return { section: section.name, text, tokens: Math.min(idsOf(text).length, context) };
}
