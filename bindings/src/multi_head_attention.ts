import type { AttentionOptions, AttentionResult, OnlyKnownOf } from "./attention.js";
import { describe, fail, HeedError } from "./errors.js";
import { execute } from "./execute.js";
import type { KernelGlue } from "./glue.js";
import type { Heap } from "./heap.js";
import { newTensor } from "./new_tensor.js";
import { asRecord, checkNames } from "./option_names.js";
import type { Registry } from "./registry.js";
import { prepare } from "./request.js";
import type { TensorArgument } from "./source.js";
import { type LoadStateOptions, readState, type StateDict } from "./state_dict.js";
import type { HeapTensor, WithDispose } from "./tensor.js";

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
    const Q extends TensorArgument,
    const K extends TensorArgument = Q,
    const V extends TensorArgument = K,
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
const OPTION_NAMES: ReadonlySet<string> = new Set([...COUNTS, ...FLAGS]);

/** The mechanism behind every layer: one KV head and as many as heads are its ends. */
const LAYER_ID = "grouped_query";

/** Inputs that do not decide whether results are plain. */
const OWN_INPUTS = ["wQ", "wK", "wV", "wO", "bQ", "bK", "bV", "bO", "biasK", "biasV", "headMask"];

function readSizes(given: unknown): Sizes {
  const options = asRecord("options", given);
  checkNames("options", options, OPTION_NAMES);
  const count = (name: (typeof COUNTS)[number], otherwise?: number): number => {
    const value = options[name] === undefined ? otherwise : options[name];
    if (typeof value !== "number") fail("option", name, value, "a whole number >= 1");
    if (!Number.isSafeInteger(value) || value < 1 || value > 2 ** 28) {
      fail("range", name, value, "a whole number from 1 to 2^28");
    }
    return value;
  };
  const flag = (name: (typeof FLAGS)[number], otherwise: boolean): boolean => {
    const value = options[name] ?? otherwise;
    if (typeof value !== "boolean") fail("option", name, value, "true or false");
    return value;
  };
  const embedDim = count("embedDim");
  const numHeads = count("numHeads");
  const numKvHeads = count("numKvHeads", numHeads);
  if (numHeads % numKvHeads !== 0) {
    fail("range", "numKvHeads", numKvHeads, `a divisor of numHeads = ${numHeads}`);
  }
  if (options.headDim === undefined && embedDim % numHeads !== 0) {
    fail("range", "embedDim", embedDim, `a multiple of numHeads = ${numHeads}, or a headDim`);
  }
  const headDim = count("headDim", embedDim / numHeads);
  return {
    embedDim,
    numHeads,
    numKvHeads,
    headDim,
    headDimV: count("headDimV", headDim),
    kdim: count("kdim", embedDim),
    vdim: count("vdim", embedDim),
    bias: flag("bias", true),
    addBiasKv: flag("addBiasKv", false),
    addZeroAttn: flag("addZeroAttn", false),
  };
}

/** A weight of the mechanism: elements and shape. */
type Weight = [name: string, data: Float32Array, shape: readonly number[]];

const rowsOf = ({ numHeads, numKvHeads, headDim, headDimV }: Sizes) => ({
  q: numHeads * headDim,
  k: numKvHeads * headDim,
  v: numKvHeads * headDimV,
  heads: numHeads * headDimV,
});

function stateShapes(s: Sizes): Map<string, readonly number[]> {
  const { q, k, v, heads } = rowsOf(s);
  const shapes = new Map<string, readonly number[]>();
  if (s.kdim === s.embedDim && s.vdim === s.embedDim) {
    shapes.set("in_proj_weight", [q + k + v, s.embedDim]);
  } else {
    shapes.set("q_proj_weight", [q, s.embedDim]);
    shapes.set("k_proj_weight", [k, s.kdim]);
    shapes.set("v_proj_weight", [v, s.vdim]);
  }
  if (s.bias) shapes.set("in_proj_bias", [q + k + v]);
  if (s.addBiasKv) shapes.set("bias_k", [1, 1, k]).set("bias_v", [1, 1, v]);
  shapes.set("out_proj.weight", [s.embedDim, heads]);
  if (s.bias) shapes.set("out_proj.bias", [s.embedDim]);
  return shapes;
}

/** Splits rows of q, k and v that lie one after the other. */
function splitRows(all: Float32Array, s: Sizes, width: number): Float32Array[] {
  const { q, k } = rowsOf(s);
  const [endQ, endK] = [q * width, (q + k) * width];
  return [all.subarray(0, endQ), all.subarray(endQ, endK), all.subarray(endK)];
}

function fromStateDict(s: Sizes, state: ReadonlyMap<string, Float32Array>): Weight[] {
  const get = (name: string): Float32Array => state.get(name) as Float32Array;
  const { numHeads, numKvHeads, headDim, headDimV, embedDim } = s;
  const [q, k, v] = state.has("in_proj_weight")
    ? splitRows(get("in_proj_weight"), s, embedDim)
    : [get("q_proj_weight"), get("k_proj_weight"), get("v_proj_weight")];
  const weights: Weight[] = [
    ["wQ", q as Float32Array, [numHeads, headDim, embedDim]],
    ["wK", k as Float32Array, [numKvHeads, headDim, s.kdim]],
    ["wV", v as Float32Array, [numKvHeads, headDimV, s.vdim]],
    ["wO", get("out_proj.weight"), [embedDim, numHeads, headDimV]],
  ];
  if (s.bias) {
    const [bQ, bK, bV] = splitRows(get("in_proj_bias"), s, 1);
    weights.push(["bQ", bQ as Float32Array, [numHeads, headDim]]);
    weights.push(["bK", bK as Float32Array, [numKvHeads, headDim]]);
    weights.push(["bV", bV as Float32Array, [numKvHeads, headDimV]]);
    weights.push(["bO", get("out_proj.bias"), [embedDim]]);
  }
  if (s.addBiasKv) {
    weights.push(["biasK", get("bias_k"), [numKvHeads, headDim]]);
    weights.push(["biasV", get("bias_v"), [numKvHeads, headDimV]]);
  }
  return weights;
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

/** The last extent of a tensor argument, where it can be told without reading all of it. */
function lastExtent(value: unknown): number | undefined {
  if (value !== null && typeof value === "object" && "shape" in value) {
    const { shape } = value as { shape: unknown };
    return Array.isArray(shape) ? (shape.at(-1) as number | undefined) : undefined;
  }
  let row = value;
  while (Array.isArray(row) && Array.isArray(row[0])) row = row[0];
  return Array.isArray(row) ? row.length : undefined;
}

function checkLastExtent(name: string, value: unknown, what: string, expected: number): void {
  const extent = lastExtent(value);
  if (extent === undefined || extent === expected) return;
  throw new HeedError(
    "shape",
    `${name}: got a last extent of ${describe(extent)}, expected ${what} = ${expected}`,
  );
}

class Layer implements MultiHeadAttentionMembers {
  readonly options: Sizes;
  readonly #heap: Heap<KernelGlue>;
  readonly #registry: Registry;
  #weights: Record<string, HeapTensor> = {};
  #loaded = false;
  #disposed = false;

  constructor(heap: Heap<KernelGlue>, registry: Registry, options: unknown) {
    heap.checkUsable();
    this.#heap = heap;
    this.#registry = registry;
    this.options = Object.freeze(readSizes(options));
  }

  get disposed(): boolean {
    return this.#disposed || this.#heap.closed;
  }

  loadStateDict(state: unknown, options?: unknown): void {
    this.#checkUsable();
    this.#replace(
      fromStateDict(this.options, readState(state, options, stateShapes(this.options))),
    );
  }

  loadKerasWeights(weights: unknown, options?: unknown): void {
    this.#checkUsable();
    if (this.options.addBiasKv) {
      throw new HeedError("unsupported", "loadKerasWeights: Keras has no bias_k and bias_v");
    }
    this.#replace(fromKeras(this.options, readState(weights, options, kerasShapes(this.options))));
  }

  forward(query: unknown, key: unknown = query, value: unknown = key, options?: unknown): never {
    this.#checkUsable();
    if (!this.#loaded) {
      throw new HeedError(
        "option",
        "forward: the layer has no weights yet; call loadStateDict() or loadKerasWeights()",
      );
    }
    const { embedDim, kdim, vdim, addZeroAttn } = this.options;
    checkLastExtent("query", query, "embedDim", embedDim);
    checkLastExtent("key", key, "kdim", kdim);
    checkLastExtent("value", value, "vdim", vdim);
    const { inputs, params } = this.#split(options);
    const named = { query, key, value, ...this.#weights, ...inputs };
    const request = prepare(this.#registry, LAYER_ID, named, { ...params, addZeroAttn });
    request.plain = request.inputs.every(
      ({ source }) => source.tensor === undefined || OWN_INPUTS.includes(source.name),
    );
    return execute(this.#heap, request) as never;
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#free(this.#weights);
  }

  // `using`, where the engine knows the symbol: typed by `WithDispose`.
  static {
    const symbol = (Symbol as { dispose?: symbol }).dispose;
    if (symbol !== undefined) {
      Object.defineProperty(Layer.prototype, symbol, { value: Layer.prototype.dispose });
    }
  }

  #checkUsable(): void {
    if (this.#disposed) throw new HeedError("disposed", "layer: it was disposed of");
    this.#heap.checkUsable();
  }

  /** Splits the options of `forward` into inputs and params of the mechanism. */
  #split(given: unknown): { inputs: Record<string, unknown>; params: Record<string, unknown> } {
    const { mechanism, params: callParams } = this.#registry.callNames(LAYER_ID);
    const weights = new Set([
      "query",
      "key",
      "value",
      ...OWN_INPUTS.filter((n) => n !== "headMask"),
    ]);
    const inputNames = new Set(
      mechanism.inputs.map(({ name }) => name).filter((name) => !weights.has(name)),
    );
    const paramNames = new Set(callParams);
    for (const name of ["addZeroAttn", "windowLeft", "windowRight", "layout"]) {
      paramNames.delete(name);
    }
    const options = asRecord("options", given);
    checkNames("options", options, new Set([...inputNames, ...paramNames]));
    const inputs: Record<string, unknown> = {};
    const params: Record<string, unknown> = {};
    for (const [name, value] of Object.entries(options)) {
      (inputNames.has(name) ? inputs : params)[name] = value;
    }
    return { inputs, params };
  }

  #replace(weights: readonly Weight[]): void {
    const next: Record<string, HeapTensor> = {};
    try {
      for (const [name, data, shape] of weights) {
        next[name] = newTensor(this.#heap, data, shape, undefined);
      }
    } catch (error) {
      this.#free(next);
      throw error;
    }
    this.#free(this.#weights);
    this.#weights = next;
    this.#loaded = true;
  }

  #free(weights: Readonly<Record<string, HeapTensor>>): void {
    for (const tensor of Object.values(weights)) tensor.dispose();
  }
}

/** The class that an instance shows as `heed.MultiHeadAttention`. */
export function multiHeadAttentionOf(
  heap: Heap<KernelGlue>,
  registry: Registry,
): MultiHeadAttentionConstructor {
  class MultiHeadAttention extends Layer {
    constructor(options: MultiHeadAttentionOptions) {
      super(heap, registry, options);
    }
  }
  return MultiHeadAttention as unknown as MultiHeadAttentionConstructor;
}
