// Llama (Touvron et al. 2023) and its relatives of the same computation, as Hugging Face stores them.
import type { Heed, RopeScaling } from "heed";
import { type Config, readRotation } from "./config.js";
import { t } from "./message.js";
import { refuse } from "./model_error.js";
import type { SafetensorsHeader } from "./safetensors.js";
import { addTo, linear, type ModelPlan, type Projected, type Sizes, type Style } from "./style.js";
import { checkHeads, TensorPlan } from "./tensor_plan.js";
import type { Weights } from "./weights.js";

/** LlamaConfig's. */
const EPSILON = 1e-6;
/** Frequencies that older files hold beside the weights. */
const IDLE = /(?:^|\.)rotary_emb\.inv_freq$/;

interface Rotation {
  readonly base: number;
  readonly scaling: RopeScaling | undefined;
}

/** What this page would compute otherwise than the config means. */
function checkConfig(config: Config): void {
  // Others have these tensor names too, and another computation: Gemma adds 1 to its norms.
  config.expect("model_type", ["llama", "mistral", "qwen2"]);
  config.expect("hidden_act", ["silu"]);
  config.expect("partial_rotary_factor", [1]);
  config.expect("use_sliding_window", [false]);
}

/** Heads and their width; widths of projections do not tell one from the other. */
function headsOf(plan: TensorPlan, config: Config) {
  const [queryRows, embedDim] = plan.shape("layers.0.self_attn.q_proj.weight", 2) as [
    number,
    number,
  ];
  const [keyRows] = plan.shape("layers.0.self_attn.k_proj.weight", 2) as [number, number];
  const numHeads =
    config.count("num_attention_heads") ??
    refuse(
      "missing",
      t`How many heads the model has stands in no file: config.json is needed (num_attention_heads).`,
    );
  checkHeads(numHeads);
  const headDim = config.count("head_dim") ?? queryRows / numHeads;
  const numKvHeads = config.count("num_key_value_heads") ?? keyRows / headDim;
  const fits =
    numHeads * headDim === queryRows &&
    numKvHeads * headDim === keyRows &&
    numHeads % numKvHeads === 0 &&
    headDim % 2 === 0;
  if (fits) return { numHeads, numKvHeads, headDim, embedDim };
  return refuse(
    "mismatch",
    t`config.json has ${numHeads} heads, ${numKvHeads} of keys, ${headDim} wide; the tensors have ${queryRows} rows of queries and ${keyRows} of keys.`,
  );
}

function planLayer(plan: TensorPlan, layer: number, sizes: Omit<Sizes, "numLayers">): void {
  const { embedDim, headDim, numHeads, numKvHeads } = sizes;
  const stem = `layers.${layer}.`;
  const pair = (name: string, rows: number, columns: number) => {
    plan.want(`${stem}${name}.weight`, [rows, columns]);
    plan.wantIfThere(`${stem}${name}.bias`, [rows]);
  };
  plan.want(`${stem}input_layernorm.weight`, [embedDim]);
  plan.want(`${stem}post_attention_layernorm.weight`, [embedDim]);
  pair("self_attn.q_proj", numHeads * headDim, embedDim);
  pair("self_attn.k_proj", numKvHeads * headDim, embedDim);
  pair("self_attn.v_proj", numKvHeads * headDim, embedDim);
  pair("self_attn.o_proj", embedDim, numHeads * headDim);
  const hidden = plan.shape(`${stem}mlp.gate_proj.weight`, 2)[0] as number;
  pair("mlp.gate_proj", hidden, embedDim);
  pair("mlp.up_proj", hidden, embedDim);
  pair("mlp.down_proj", embedDim, hidden);
}

/** The tied head needs no tensor; a config that says it is not tied does. */
function planHead(plan: TensorPlan, config: Config, vocabSize: number, embedDim: number): void {
  if (!plan.has("lm_head.weight") && config.flag("tie_word_embeddings") === false)
    refuse("missing", t`The file lacks the tensor “lm_head.weight”.`);
  plan.wantIfThere("lm_head.weight", [vocabSize, embedDim]);
}

/** Throws ModelError for tensors or a config that are not Llama's. */
export function planLlama({ tensors }: SafetensorsHeader, config: Config): ModelPlan {
  checkConfig(config);
  const plan = new TensorPlan(tensors, tensors.has("model.embed_tokens.weight") ? "model." : "");
  const [vocabSize] = plan.shape("embed_tokens.weight", 2) as [number, number];
  const heads = headsOf(plan, config);
  const { embedDim } = heads;
  const contextLength = config.count("max_position_embeddings") ?? null;
  const window =
    config.get("model_type") === "qwen2" ? null : (config.count("sliding_window") ?? null);
  const widths = { ...heads, vocabSize, contextLength, window };
  plan.want("embed_tokens.weight", [vocabSize, embedDim]);
  const numLayers = plan.countLayers("layers.");
  for (let layer = 0; layer < numLayers; layer++) planLayer(plan, layer, widths);
  plan.want("norm.weight", [embedDim]);
  planHead(plan, config, vocabSize, embedDim);
  plan.refuseOthers(IDLE);
  const sizes = { ...widths, numLayers };
  const rotation = readRotation(config);
  const epsilon = config.positive("rms_norm_eps") ?? EPSILON;
  return {
    name: "llama",
    plan,
    sizes,
    endTokens: config.ids("eos_token_id"),
    make: (heed, weights) => new Llama(heed, weights, { sizes, rotation, epsilon }),
  };
}

/** SiLU of the gate times the other branch, in place. */
function gated(gate: Float32Array, up: Float32Array): Float32Array {
  for (let n = 0; n < gate.length; n++) {
    const value = gate[n] as number;
    gate[n] = (value / (1 + Math.exp(-value))) * (up[n] as number);
  }
  return gate;
}

class Llama implements Style {
  private readonly headName: string;

  constructor(
    private readonly heed: Heed,
    private readonly weights: Weights,
    private readonly numbers: { sizes: Sizes; rotation: Rotation; epsilon: number },
  ) {
    this.headName = weights.has("lm_head.weight") ? "lm_head.weight" : "embed_tokens.weight";
  }

  embed(ids: readonly number[]): Float32Array {
    return this.weights.matrix("embed_tokens.weight").gather(ids);
  }

  project(layer: number, x: Float32Array, start: number): Projected {
    const { numHeads, numKvHeads } = this.numbers.sizes;
    const stem = `layers.${layer}.`;
    const rows = this.norm(`${stem}input_layernorm`, x);
    const projected = (name: string) => linear(this.weights, `${stem}self_attn.${name}_proj`, rows);
    return {
      q: this.rotated(projected("q"), numHeads, start),
      k: this.rotated(projected("k"), numKvHeads, start),
      v: projected("v"),
    };
  }

  addHeads(layer: number, x: Float32Array, heads: Float32Array): void {
    addTo(x, linear(this.weights, `layers.${layer}.self_attn.o_proj`, heads));
  }

  addFeedForward(layer: number, x: Float32Array): void {
    const stem = `layers.${layer}.`;
    const rows = this.norm(`${stem}post_attention_layernorm`, x);
    const branch = (name: string) => linear(this.weights, `${stem}mlp.${name}_proj`, rows);
    const hidden = gated(branch("gate"), branch("up"));
    addTo(x, linear(this.weights, `${stem}mlp.down_proj`, hidden));
  }

  logits(x: Float32Array): Float32Array {
    const head = this.weights.matrix(this.headName);
    return head.timesTransposed(this.norm("norm", x), x.length / this.numbers.sizes.embedDim);
  }

  /** x [len, heads * headDim], its first row at position `start`. */
  private rotated(x: Float32Array, heads: number, start: number): Float32Array {
    const { rotation, sizes } = this.numbers;
    const { headDim } = sizes;
    const { base, scaling } = rotation;
    const rows = { data: x, shape: [1, x.length / (heads * headDim), heads, headDim] };
    // Hugging Face permutes Meta's weights, so that halves turn together.
    return this.heed.rope(rows, {
      pairing: "half",
      layout: "blhd",
      base,
      offset: start,
      ...(scaling && { scaling }),
    }).data;
  }

  private norm(name: string, x: Float32Array): Float32Array {
    const { sizes, epsilon } = this.numbers;
    const { embedDim } = sizes;
    const weight = { data: this.weights.vector(`${name}.weight`), shape: [embedDim] };
    const rows = { data: x, shape: [x.length / embedDim, embedDim] };
    return this.heed.rmsNorm(rows, { weight, epsilon }).data;
  }
}
