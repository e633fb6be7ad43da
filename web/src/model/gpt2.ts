// GPT-2 (Radford et al. 2019) as Hugging Face stores it.
import type { Heed } from "heed";
import type { Config } from "./config.js";
import { t } from "./message.js";
import { refuse } from "./model_error.js";
import type { SafetensorsHeader } from "./safetensors.js";
import { addTo, conv1d, type ModelPlan, type Projected, type Sizes, type Style } from "./style.js";
import { checkHeads, TensorPlan } from "./tensor_plan.js";
import type { Weights } from "./weights.js";

/** All published sizes have heads of this width; config.json may say otherwise. */
const HEAD_DIM = 64;
/** GPT2Config's. */
const EPSILON = 1e-5;
/** Masks that older files hold beside the weights. */
const IDLE = /(?:^|\.)h\.\d+\.attn\.(?:masked_)?bias$/;

/** What this page would compute otherwise than the config means. */
function checkConfig(config: Config): void {
  config.expect("model_type", ["gpt2"]);
  config.expect("activation_function", ["gelu_new", "gelu_pytorch_tanh"]);
  config.expect("scale_attn_weights", [true]);
  config.expect("scale_attn_by_inverse_layer_idx", [false]);
  config.expect("add_cross_attention", [false]);
}

function headsOf(config: Config, embedDim: number): number {
  const numHeads = config.count("n_head") ?? config.count("num_attention_heads");
  if (numHeads === undefined && embedDim % HEAD_DIM === 0) return embedDim / HEAD_DIM;
  if (numHeads === undefined)
    return refuse(
      "missing",
      t`How many heads the model has stands in no file: config.json is needed (n_head). Without one, heads are ${HEAD_DIM} wide, which ${embedDim} is no multiple of.`,
    );
  if (embedDim % numHeads === 0) return numHeads;
  return refuse(
    "mismatch",
    t`config.json has ${numHeads} heads; the tensors have rows of ${embedDim}, which they cannot share.`,
  );
}

function planLayer(plan: TensorPlan, layer: number, embedDim: number): void {
  const stem = `h.${layer}.`;
  const pair = (name: string, rows: number, columns: number) => {
    plan.want(`${stem}${name}.weight`, [rows, columns]);
    plan.want(`${stem}${name}.bias`, [columns]);
  };
  for (const norm of ["ln_1", "ln_2"]) {
    plan.want(`${stem}${norm}.weight`, [embedDim]);
    plan.want(`${stem}${norm}.bias`, [embedDim]);
  }
  const hidden = plan.shape(`${stem}mlp.c_fc.weight`, 2)[1] as number;
  pair("attn.c_attn", embedDim, 3 * embedDim);
  pair("attn.c_proj", embedDim, embedDim);
  pair("mlp.c_fc", embedDim, hidden);
  pair("mlp.c_proj", hidden, embedDim);
}

/** Throws ModelError for tensors or a config that are not GPT-2's. */
export function planGpt2({ tensors }: SafetensorsHeader, config: Config): ModelPlan {
  checkConfig(config);
  const plan = new TensorPlan(tensors, tensors.has("transformer.wte.weight") ? "transformer." : "");
  const [vocabSize, embedDim] = plan.shape("wte.weight", 2) as [number, number];
  const contextLength = plan.shape("wpe.weight", 2)[0] as number;
  plan.want("wte.weight", [vocabSize, embedDim]);
  plan.want("wpe.weight", [contextLength, embedDim]);
  const numHeads = headsOf(config, embedDim);
  checkHeads(numHeads);
  const numLayers = plan.countLayers("h.");
  for (let layer = 0; layer < numLayers; layer++) planLayer(plan, layer, embedDim);
  plan.want("ln_f.weight", [embedDim]);
  plan.want("ln_f.bias", [embedDim]);
  plan.wantIfThere("lm_head.weight", [vocabSize, embedDim]);
  plan.refuseOthers(IDLE);
  const headDim = embedDim / numHeads;
  const heads = { numHeads, numKvHeads: numHeads, headDim };
  const sizes = { numLayers, ...heads, embedDim, vocabSize, contextLength, window: null };
  const epsilon = config.positive("layer_norm_epsilon") ?? EPSILON;
  return {
    name: "gpt2",
    plan,
    sizes,
    endTokens: config.ids("eos_token_id"),
    make: (heed, weights) => new Gpt2(heed, weights, sizes, epsilon),
  };
}

/** GELU by tanh, in place. */
function gelu(x: Float32Array): Float32Array {
  const factor = Math.sqrt(2 / Math.PI);
  for (let n = 0; n < x.length; n++) {
    const value = x[n] as number;
    x[n] = 0.5 * value * (1 + Math.tanh(factor * (value + 0.044715 * value ** 3)));
  }
  return x;
}

class Gpt2 implements Style {
  private readonly headName: string;

  constructor(
    private readonly heed: Heed,
    private readonly weights: Weights,
    private readonly sizes: Sizes,
    private readonly epsilon: number,
  ) {
    this.headName = weights.has("lm_head.weight") ? "lm_head.weight" : "wte.weight";
  }

  embed(ids: readonly number[], start: number): Float32Array {
    const x = this.weights.matrix("wte.weight").gather(ids);
    addTo(x, this.weights.matrix("wpe.weight").gather(ids.map((_, at) => start + at)));
    return x;
  }

  project(layer: number, x: Float32Array): Projected {
    const { embedDim } = this.sizes;
    const rows = conv1d(this.weights, `h.${layer}.attn.c_attn`, this.norm(`h.${layer}.ln_1`, x));
    const len = x.length / embedDim;
    const part = (which: number): Float32Array => {
      const taken = new Float32Array(x.length);
      for (let row = 0; row < len; row++) {
        const begin = (3 * row + which) * embedDim;
        taken.set(rows.subarray(begin, begin + embedDim), row * embedDim);
      }
      return taken;
    };
    return { q: part(0), k: part(1), v: part(2) };
  }

  addHeads(layer: number, x: Float32Array, heads: Float32Array): void {
    addTo(x, conv1d(this.weights, `h.${layer}.attn.c_proj`, heads));
  }

  addFeedForward(layer: number, x: Float32Array): void {
    const stem = `h.${layer}.`;
    const hidden = conv1d(this.weights, `${stem}mlp.c_fc`, this.norm(`${stem}ln_2`, x));
    addTo(x, conv1d(this.weights, `${stem}mlp.c_proj`, gelu(hidden)));
  }

  logits(x: Float32Array): Float32Array {
    const head = this.weights.matrix(this.headName);
    return head.timesTransposed(this.norm("ln_f", x), x.length / this.sizes.embedDim);
  }

  private norm(name: string, x: Float32Array): Float32Array {
    const { embedDim } = this.sizes;
    const vector = (kind: string) => ({
      data: this.weights.vector(`${name}.${kind}`),
      shape: [embedDim],
    });
    const options = { weight: vector("weight"), bias: vector("bias"), epsilon: this.epsilon };
    return this.heed.layerNorm({ data: x, shape: [x.length / embedDim, embedDim] }, options).data;
  }
}
