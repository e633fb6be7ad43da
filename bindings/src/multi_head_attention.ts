import type { AttentionOptions, AttentionResult, OnlyKnownOf } from "./attention.js";
import { fail, HeedError } from "./errors.js";
import type { KernelGlue } from "./glue.js";
import type { Heap } from "./heap.js";
import {
  checkLastExtent,
  Layer,
  type LayerMechanism,
  LayerOptions,
  layerOf,
  readHeadSizes,
  type Weight,
} from "./layer.js";
import { fromStateDict, stateShapes } from "./projections.js";
import type { Registry } from "./registry.js";
import type { MatrixArgument, TensorArgument } from "./source.js";
import { type LoadStateOptions, readState, type StateDict } from "./state_dict.js";
import type { WithDispose } from "./tensor.js";

/** Sizes and parts of a layer; those of PyTorch's nn.MultiheadAttention, and grouped heads. */
export interface MultiHeadAttentionOptions {
  /** Of queries and output. */
  readonly embedDim: number;
  readonly numHeads: number;
  /** Default numHeads; 1 = multi-query, a divisor in between = grouped-query. */
  readonly numKvHeads?: number | undefined;
  /** Default embedDim / numHeads, which must be whole. */
  readonly headDim?: number | undefined;
  /** Of the values; default headDim. */
  readonly headDimV?: number | undefined;
  /** Of the keys; default embedDim. */
  readonly kdim?: number | undefined;
  /** Of the values; default embedDim. */
  readonly vdim?: number | undefined;
  /** Biases of all four projections. Default true. */
  readonly bias?: boolean | undefined;
  /** One more learned key and value. Default false. */
  readonly addBiasKv?: boolean | undefined;
  /** One more key and value of zeros. Default false. */
  readonly addZeroAttn?: boolean | undefined;
}

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
  | "alibiSlopes"
  | "returnWeights"
  | "returnLse";

/** Options of `forward`: those of `heed.attention` that a layer takes, and two more. */
export interface MultiHeadForwardOptions extends Pick<AttentionOptions, Inside> {
  /** [num_heads] factors on the heads' outputs; exactly 0 prunes a head. */
  readonly headMask?: TensorArgument | undefined;
  /** Weights as the mean of the heads, [batch, q_len, kv_len], instead of one matrix a head. */
  readonly averageWeights?: boolean | undefined;
}

/** A multi-head attention layer with its weights in the memory of the instance. */
export interface MultiHeadAttentionMembers {
  /** The options with their defaults. */
  readonly options: MultiHeadAttentionSizes;
  readonly disposed: boolean;
  /**
   * Loads weights by PyTorch's names and shapes: in_proj_weight (or q_proj_weight, k_proj_weight,
   * v_proj_weight where kdim or vdim differs), in_proj_bias, bias_k, bias_v, out_proj.weight,
   * out_proj.bias. Every name must be there; on error the weights are as before.
   */
  loadStateDict(state: StateDict, options?: LoadStateOptions): void;
  /**
   * Loads weights of Keras' MultiHeadAttention or GroupedQueryAttention: query/kernel
   * [embed_dim, num_heads, head_dim], key/kernel, value/kernel, attention_output/kernel
   * [num_heads, head_dim, embed_dim], and the same with /bias.
   */
  loadKerasWeights(weights: StateDict, options?: LoadStateOptions): void;
  /**
   * query [batch, q_len, embedDim], key [batch, kv_len, kdim] (default query), value
   * [batch, kv_len, vdim] (default key) -> output [batch, q_len, embedDim]. `weights`
   * [batch, num_heads, q_len, kv_len] has a further column for each extra key. A query that sees no
   * key gives out_proj.bias. Results are plain unless an argument is a Tensor. Throws HeedError.
   */
  forward<
    const Q extends MatrixArgument,
    const K extends MatrixArgument = Q,
    const V extends MatrixArgument = K,
    const O extends MultiHeadForwardOptions = Record<never, never>,
  >(
    query: Q,
    key?: K,
    value?: V,
    options?: O & OnlyKnownOf<O, MultiHeadForwardOptions>,
  ): AttentionResult<Q, K, V, O>;
  /** Frees the weights. May be called again. */
  dispose(): void;
}

export type MultiHeadAttention = MultiHeadAttentionMembers & WithDispose;

/** `heed.MultiHeadAttention`: makes layers in that instance. */
export interface MultiHeadAttentionConstructor {
  new (options: MultiHeadAttentionOptions): MultiHeadAttention;
}

/** The options of a layer with their defaults. */
export type MultiHeadAttentionSizes = {
  readonly [K in keyof MultiHeadAttentionOptions]-?: NonNullable<MultiHeadAttentionOptions[K]>;
};
type Sizes = MultiHeadAttentionSizes;

const COUNTS = [
  "embedDim",
  "numHeads",
  "numKvHeads",
  "headDim",
  "headDimV",
  "kdim",
  "vdim",
] as const;
const FLAGS = ["bias", "addBiasKv", "addZeroAttn"] as const;
/** The mechanism behind every layer: one KV head and as many as heads are its ends. */
const MECHANISM: LayerMechanism = {
  id: "grouped_query",
  streams: ["query", "key", "value"],
  weights: ["wQ", "wK", "wV", "wO", "bQ", "bK", "bV", "bO", "biasK", "biasV"],
  settled: ["addZeroAttn"],
  loaders: "loadStateDict() or loadKerasWeights()",
};

function readSizes(given: unknown): Sizes {
  const options = new LayerOptions(given, [...COUNTS, ...FLAGS]);
  const heads = readHeadSizes(options);
  return {
    ...heads,
    kdim: options.count("kdim", heads.embedDim),
    vdim: options.count("vdim", heads.embedDim),
    bias: options.flag("bias", true),
    addBiasKv: options.flag("addBiasKv", false),
    addZeroAttn: options.flag("addZeroAttn", false),
  };
}

function kerasShapes(s: Sizes): Map<string, readonly number[]> {
  const { numHeads, numKvHeads, headDim, headDimV } = s;
  const shapes = new Map<string, readonly number[]>([
    ["query/kernel", [s.embedDim, numHeads, headDim]],
    ["key/kernel", [s.kdim, numKvHeads, headDim]],
    ["value/kernel", [s.vdim, numKvHeads, headDimV]],
    ["attention_output/kernel", [numHeads, headDimV, s.embedDim]],
  ]);
  if (!s.bias) return shapes;
  return shapes
    .set("query/bias", [numHeads, headDim])
    .set("key/bias", [numKvHeads, headDim])
    .set("value/bias", [numKvHeads, headDimV])
    .set("attention_output/bias", [s.embedDim]);
}

/** [cols, rows] from [rows, cols]. */
function transpose(values: Float32Array, rows: number): Float32Array {
  const cols = values.length / rows;
  return Float32Array.from(
    values,
    (_, n) => values[(n % rows) * cols + Math.floor(n / rows)] as number,
  );
}

function fromKeras(s: Sizes, state: ReadonlyMap<string, Float32Array>): Weight[] {
  const get = (name: string): Float32Array => state.get(name) as Float32Array;
  const { numHeads, numKvHeads, headDim, headDimV, embedDim } = s;
  const weights: Weight[] = [
    ["wQ", transpose(get("query/kernel"), embedDim), [numHeads, headDim, embedDim]],
    ["wK", transpose(get("key/kernel"), s.kdim), [numKvHeads, headDim, s.kdim]],
    ["wV", transpose(get("value/kernel"), s.vdim), [numKvHeads, headDimV, s.vdim]],
    [
      "wO",
      transpose(get("attention_output/kernel"), numHeads * headDimV),
      [embedDim, numHeads, headDimV],
    ],
  ];
  if (!s.bias) return weights;
  weights.push(["bQ", get("query/bias"), [numHeads, headDim]]);
  weights.push(["bK", get("key/bias"), [numKvHeads, headDim]]);
  weights.push(["bV", get("value/bias"), [numKvHeads, headDimV]]);
  weights.push(["bO", get("attention_output/bias"), [embedDim]]);
  return weights;
}

/** Options in the place of a tensor are a likely mistake. */
function checkNoOptions(name: string, value: unknown): void {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isObject || ArrayBuffer.isView(value) || "data" in value) return;
  fail("option", name, value, "a tensor: options come fourth, forward(query, key, value, options)");
}

class MultiHeadAttentionLayer extends Layer<Sizes> implements MultiHeadAttentionMembers {
  constructor(heap: Heap<KernelGlue>, registry: Registry, options: unknown) {
    super(heap, registry, MECHANISM, readSizes, options);
  }

  loadStateDict(state: unknown, options?: unknown): void {
    this.checkUsable();
    const read = readState(state, options, stateShapes(this.options));
    this.replace(fromStateDict(this.options, read));
  }

  loadKerasWeights(weights: unknown, options?: unknown): void {
    this.checkUsable();
    if (this.options.addBiasKv) {
      throw new HeedError("unsupported", "loadKerasWeights: Keras has no bias_k and bias_v");
    }
    const read = readState(weights, options, kerasShapes(this.options));
    this.replace(fromKeras(this.options, read));
  }

  forward(query: unknown, key: unknown = query, value: unknown = key, options?: unknown): never {
    this.checkLoaded();
    const { embedDim, kdim, vdim, addZeroAttn } = this.options;
    checkNoOptions("key", key);
    checkNoOptions("value", value);
    checkLastExtent("query", query, "embedDim", embedDim);
    checkLastExtent("key", key, "kdim", kdim);
    checkLastExtent("value", value, "vdim", vdim);
    return this.run({ query, key, value }, { addZeroAttn }, options) as never;
  }
}

/** The class that an instance shows as `heed.MultiHeadAttention`. */
export const multiHeadAttentionOf = (
  heap: Heap<KernelGlue>,
  registry: Registry,
): MultiHeadAttentionConstructor =>
  layerOf("MultiHeadAttention", heap, registry, MultiHeadAttentionLayer);
