// A model out of its files: header, sizes and tokenizer are checked before the first weight is read.
import type { Heed } from "heed";
import { type Config, configOfMetadata, readConfig } from "./config.js";
import { Engine } from "./engine.js";
import { planGpt2 } from "./gpt2.js";
import { planLlama } from "./llama.js";
import { t } from "./message.js";
import { ModelError, refuse } from "./model_error.js";
import type { ModelFacts, ModelFiles, OpenProgress } from "./model_types.js";
import { NumberText } from "./number_text.js";
import { readHeader, type SafetensorsHeader } from "./safetensors.js";
import type { ModelPlan, Sizes } from "./style.js";
import { type TextCoder, Tokenizer } from "./tokenizer.js";
import { readTokenizer } from "./tokenizer_file.js";
import { type Placement, placementOf, type WeightReading, Weights } from "./weights.js";

export interface OpenedModel {
  readonly facts: ModelFacts;
  readonly sizes: Sizes;
  readonly engine: Engine;
  /** The tokenizer, or without one the numbers of tokens. */
  readonly coder: TextCoder;
}

export type LoadHeed = (options: { threads: "auto" | 1 }) => Promise<Heed>;

/** By the name of the embedding, with and without what whole models have before it. */
function planModel(header: SafetensorsHeader, config: Config): ModelPlan {
  const has = (name: string) => header.tensors.has(name);
  if (has("wte.weight") || has("transformer.wte.weight")) return planGpt2(header, config);
  if (has("embed_tokens.weight") || has("model.embed_tokens.weight"))
    return planLlama(header, config);
  return refuse(
    "unknown-model",
    t`The file has neither GPT-2’s tensors (wte.weight) nor Llama’s (model.embed_tokens.weight). Of a model in several files this page reads none.`,
  );
}

async function openTokenizer(file: Blob, vocabSize: number): Promise<Tokenizer> {
  const tokenizer = new Tokenizer(await readTokenizer(file));
  if (tokenizer.size > vocabSize)
    refuse(
      "mismatch",
      t`tokenizer.json has ids up to ${tokenizer.size - 1}; the model knows those below ${vocabSize}.`,
    );
  return tokenizer;
}

function factsOf(
  { name, sizes, endTokens }: ModelPlan,
  { numParameters, dtype }: Placement,
  hasTokenizer: boolean,
): ModelFacts {
  const { window: _, ...shown } = sizes;
  return { style: name, ...shown, numParameters, dtype, hasTokenizer, endTokens };
}

/**
 * heed with the weights in it: on all threads or, where what these may share is too small (512 MB on some
 * devices), on one, whose memory has room for more.
 */
async function readWeights(
  load: LoadHeed,
  entries: SafetensorsHeader["tensors"],
  reading: Omit<WeightReading, "heed">,
  threads: "auto" | 1 = "auto",
): Promise<{ heed: Heed; weights: Weights }> {
  const heed = await load({ threads });
  try {
    return { heed, weights: await Weights.read(entries, { ...reading, heed }) };
  } catch (error) {
    const full = error instanceof ModelError && error.code === "memory";
    if (!full || heed.threads === 1) throw error;
    heed.dispose();
    return readWeights(load, entries, reading, 1);
  }
}

/** Throws ModelError. */
export async function openFiles(
  files: ModelFiles,
  load: LoadHeed,
  onProgress: (progress: OpenProgress) => void,
): Promise<OpenedModel> {
  onProgress({ stage: "header", fraction: 0 });
  const header = await readHeader(files.weights);
  const config = files.config ? await readConfig(files.config) : configOfMetadata(header.metadata);
  const plan = planModel(header, config);
  const { entries } = plan.plan;
  const placement = placementOf(entries.values());
  onProgress({ stage: "tokenizer", fraction: 0 });
  const { tokenizer } = files;
  const { vocabSize } = plan.sizes;
  const coder = tokenizer ? await openTokenizer(tokenizer, vocabSize) : new NumberText(vocabSize);
  onProgress({ stage: "engine", fraction: 0 });
  const { resident, bytes } = placement;
  const onBytes = (read: number) => onProgress({ stage: "weights", fraction: read / bytes });
  const reading = { file: files.weights, resident, onBytes };
  const { heed, weights } = await readWeights(load, entries, reading);
  return {
    facts: factsOf(plan, placement, tokenizer !== undefined),
    sizes: plan.sizes,
    engine: new Engine(heed, plan.make(heed, weights), plan.sizes, plan.endTokens),
    coder,
  };
}
