import type { AttentionOptions, OnlyKnownOf, ResultTensor } from "./attention.js";
import { HeedError } from "./errors.js";
import type { KernelGlue } from "./glue.js";
import type { Heap } from "./heap.js";
import {
  checkLastExtent,
  Layer,
  type LayerMechanism,
  LayerOptions,
  layerOf,
  readHeadSizes,
  readWeights,
  type Weight,
  type WeightShapes,
} from "./layer.js";
import { fromStateDict, SELF_WEIGHTS, selfShapes, stateShapes } from "./projections.js";
import type { Registry } from "./registry.js";
import type { MatrixArgument, TensorArgument } from "./source.js";
import { type LoadStateOptions, readState, type StateDict } from "./state_dict.js";
import type { WithDispose } from "./tensor.js";

/** Sizes and parts of a block; the defaults are GPT-2's, PyTorch's are `normOrder: "post"` and relu. */
export interface TransformerBlockOptions {
  /** Of the rows that go in and out. */
  readonly embedDim: number;
  readonly numHeads: number;
  /** Default numHeads; a divisor of it. */
  readonly numKvHeads?: number | undefined;
  /** Default embedDim / numHeads, which must be whole. */
  readonly headDim?: number | undefined;
  /** Of the values; default headDim. */
  readonly headDimV?: number | undefined;
  /** Inside the feed-forward network; default 4 * embedDim. */
  readonly ffDim?: number | undefined;
  /** Biases of all matrices. Default true. */
  readonly bias?: boolean | undefined;
  /** A gate in the feed-forward network; with "silu" it is SwiGLU. Default false. */
  readonly gated?: boolean | undefined;
  /** Layer norm or root mean square. Default "layer". */
  readonly norm?: "layer" | "rms" | undefined;
  /** Biases of the norms. Default: where `bias` is true and the norm is "layer". */
  readonly normBias?: boolean | undefined;
  /** Norms before each part, or after each residual. Default "pre". */
  readonly normOrder?: "pre" | "post" | undefined;
  /** Default "gelu". */
  readonly activation?: "gelu" | "gelu_tanh" | "silu" | "relu" | undefined;
  /** Added to the variance under the root of a norm; > 0. Default 1e-5. */
  readonly epsilon?: number | undefined;
  /** One more key and value of zeros. Default false. */
  readonly addZeroAttn?: boolean | undefined;
}

/** The options of a block with their defaults. */
export type TransformerBlockSizes = {
  readonly [K in keyof TransformerBlockOptions]-?: NonNullable<TransformerBlockOptions[K]>;
};

type Inside =
  | "scale"
  | "softcap"
  | "causal"
  | "window"
  | "queryOffset"
  | "keep"
  | "bias"
  | "keyLengths"
  | "sinks"
  | "alibiSlopes";

/** Options of the self-attention inside a layer: those of `heed.attention`, and one more. */
export interface SelfAttentionOptions extends Pick<AttentionOptions, Inside> {
  /** [num_heads] factors on the heads' outputs; exactly 0 prunes a head. */
  readonly headMask?: TensorArgument | undefined;
}

/** A transformer block with its weights in the memory of the instance. */
export interface TransformerBlockMembers {
  readonly options: TransformerBlockSizes;
  readonly disposed: boolean;
  /**
   * Loads weights by PyTorch's names and shapes of nn.TransformerEncoderLayer: self_attn.in_proj_weight,
   * self_attn.out_proj.weight, linear1.weight, linear2.weight, norm1.weight, norm2.weight and their
   * biases. Every name must be there; on error the weights are as before.
   */
  loadStateDict(state: StateDict, options?: LoadStateOptions): void;
  /**
   * Loads weights by the names of the mechanism `transformer_block`: wQ [num_heads, head_dim, embed_dim],
   * wK, wV, wO [embed_dim, num_heads, head_dim_v], wUp and wGate [ff_dim, embed_dim], wDown
   * [embed_dim, ff_dim], bQ, bK, bV, bO, bUp, bGate, bDown, norm1Weight, norm1Bias, norm2Weight,
   * norm2Bias: those that the options ask for, and no other.
   */
  loadWeights(weights: StateDict, options?: LoadStateOptions): void;
  /**
   * x [batch, len, embedDim] -> output of the same shape. Rows at or beyond keyLengths are computed like
   * all others. Results are plain unless an argument is a Tensor. Throws HeedError.
   */
  forward<
    const X extends MatrixArgument,
    const O extends SelfAttentionOptions = Record<never, never>,
  >(
    x: X,
    options?: O & OnlyKnownOf<O, SelfAttentionOptions>,
  ): { readonly output: ResultTensor<X, X, X, O> };
  /** Frees the weights. May be called again. */
  dispose(): void;
}

export type TransformerBlock = TransformerBlockMembers & WithDispose;

/** `heed.TransformerBlock`: makes blocks in that instance. */
export interface TransformerBlockConstructor {
  new (options: TransformerBlockOptions): TransformerBlock;
}

const OPTION_NAMES = [
  ..."embedDim numHeads numKvHeads headDim headDimV ffDim bias gated norm normBias".split(" "),
  ..."normOrder activation epsilon addZeroAttn".split(" "),
];
const NORMS = ["norm1Weight", "norm1Bias", "norm2Weight", "norm2Bias"];
const FEED_FORWARD = ["wUp", "bUp", "wGate", "bGate", "wDown", "bDown"];

const MECHANISM: LayerMechanism = {
  id: "transformer_block",
  streams: ["x"],
  weights: [...SELF_WEIGHTS, ...NORMS, ...FEED_FORWARD],
  settled: ["norm", "normOrder", "activation", "epsilon", "addZeroAttn"],
  loaders: "loadStateDict() or loadWeights()",
};

function readSizes(given: unknown): TransformerBlockSizes {
  const options = new LayerOptions(given, OPTION_NAMES);
  const heads = readHeadSizes(options);
  const bias = options.flag("bias", true);
  const norm = options.word("norm", ["layer", "rms"], "layer");
  return {
    ...heads,
    ffDim: options.count("ffDim", 4 * heads.embedDim),
    bias,
    gated: options.flag("gated", false),
    norm,
    normBias: options.flag("normBias", bias && norm === "layer"),
    normOrder: options.word("normOrder", ["pre", "post"], "pre"),
    activation: options.word("activation", ["gelu", "gelu_tanh", "silu", "relu"], "gelu"),
    epsilon: options.number("epsilon", 1e-5, 0),
    addZeroAttn: options.flag("addZeroAttn", false),
  };
}

function weightShapes(s: TransformerBlockSizes): WeightShapes {
  const { embedDim, ffDim, bias, gated, normBias } = s;
  const shapes = new Map(selfShapes(s));
  shapes.set("wUp", [ffDim, embedDim]).set("wDown", [embedDim, ffDim]);
  if (bias) shapes.set("bUp", [ffDim]).set("bDown", [embedDim]);
  if (gated) shapes.set("wGate", [ffDim, embedDim]);
  if (gated && bias) shapes.set("bGate", [ffDim]);
  for (const norm of ["norm1", "norm2"]) {
    shapes.set(`${norm}Weight`, [embedDim]);
    if (normBias) shapes.set(`${norm}Bias`, [embedDim]);
  }
  return shapes;
}

/** PyTorch's name of each weight of the feed-forward network and the norms. */
const PYTORCH: Readonly<Record<string, string>> = {
  wUp: "linear1.weight",
  bUp: "linear1.bias",
  wDown: "linear2.weight",
  bDown: "linear2.bias",
  norm1Weight: "norm1.weight",
  norm1Bias: "norm1.bias",
  norm2Weight: "norm2.weight",
  norm2Bias: "norm2.bias",
};

const SELF = "self_attn.";

const attentionSizes = (s: TransformerBlockSizes) => ({
  ...s,
  kdim: s.embedDim,
  vdim: s.embedDim,
  addBiasKv: false,
});

function pytorchShapes(s: TransformerBlockSizes): WeightShapes {
  const shapes = new Map<string, readonly number[]>();
  for (const [name, shape] of stateShapes(attentionSizes(s))) shapes.set(SELF + name, shape);
  for (const [name, shape] of weightShapes(s)) {
    const foreign = PYTORCH[name];
    if (foreign !== undefined) shapes.set(foreign, shape);
  }
  return shapes;
}

function fromPytorch(s: TransformerBlockSizes, state: ReadonlyMap<string, Float32Array>): Weight[] {
  const attention = new Map<string, Float32Array>();
  for (const [name, data] of state) {
    if (name.startsWith(SELF)) attention.set(name.slice(SELF.length), data);
  }
  const weights = fromStateDict(attentionSizes(s), attention);
  for (const [name, shape] of weightShapes(s)) {
    const foreign = PYTORCH[name];
    if (foreign !== undefined) weights.push([name, state.get(foreign) as Float32Array, shape]);
  }
  return weights;
}

class TransformerBlockLayer
  extends Layer<TransformerBlockSizes>
  implements TransformerBlockMembers
{
  constructor(heap: Heap<KernelGlue>, registry: Registry, options: unknown) {
    super(heap, registry, MECHANISM, readSizes, options);
  }

  loadStateDict(state: unknown, options?: unknown): void {
    this.checkUsable();
    if (this.options.gated) {
      throw new HeedError(
        "unsupported",
        "loadStateDict: nn.TransformerEncoderLayer has no gate; loadWeights() takes wGate",
      );
    }
    const read = readState(state, options, pytorchShapes(this.options));
    this.replace(fromPytorch(this.options, read));
  }

  loadWeights(weights: unknown, options?: unknown): void {
    this.checkUsable();
    this.replace(readWeights(weights, options, weightShapes(this.options)));
  }

  forward(x: unknown, options?: unknown): never {
    this.checkLoaded();
    const { embedDim, norm, normOrder, activation, epsilon, addZeroAttn } = this.options;
    checkLastExtent("x", x, "embedDim", embedDim);
    const settled = { norm, normOrder, activation, epsilon, addZeroAttn };
    return this.run({ x }, settled, options) as never;
  }
}

/** The class that an instance shows as `heed.TransformerBlock`. */
export const transformerBlockOf = (
  heap: Heap<KernelGlue>,
  registry: Registry,
): TransformerBlockConstructor =>
  layerOf("TransformerBlock", heap, registry, TransformerBlockLayer);
