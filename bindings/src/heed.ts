import type { AnalysisFunctions } from "./analysis.js";
import { analysisOf } from "./analysis_functions.js";
import {
  type Asked,
  ATTENTION_ID,
  type AttentionOptions,
  type AttentionResult,
  type OnlyKnown,
  type OutputDType,
  optionNames,
  splitOptions,
} from "./attention.js";
import {
  type AttentionClassifierConstructor,
  attentionClassifierOf,
} from "./attention_classifier.js";
import { type EstimateCostFunction, estimateCostOf } from "./estimate_cost.js";
import { execute } from "./execute.js";
import { type ExplainFunction, explainOf } from "./explain.js";
import type { KernelGlue, ReferenceGlue } from "./glue.js";
import type { Heap, MemoryReport } from "./heap.js";
import { type KvCacheConstructor, kvCacheOf } from "./kv_cache.js";
import {
  alibiSlopes,
  documentsFromCuSeqlens,
  keepFromCoo,
  keepFromCsr,
  keepFromDropMask,
  lastN,
} from "./masks.js";
import {
  type MultiHeadAttentionConstructor,
  multiHeadAttentionOf,
} from "./multi_head_attention.js";
import {
  type MultiHeadLatentAttentionConstructor,
  multiHeadLatentAttentionOf,
} from "./multi_head_latent_attention.js";
import { newTensor, type TensorFunction } from "./new_tensor.js";
import { type PositionFunctions, positionsOf } from "./position.js";
import { type ProductFunctions, productFunctions } from "./products.js";
import { type ReferenceResult, runReference } from "./reference.js";
import type { Mechanism, Parameter, Registry } from "./registry.js";
import { prepare, type Request } from "./request.js";
import { type RowFunctions, rowFunctions } from "./rows.js";
import { detain, type MatrixArgument, type TensorArgument } from "./source.js";
import type { PlainTensor, Tensor } from "./tensor.js";
import { type TransformerBlockConstructor, transformerBlockOf } from "./transformer_block.js";
import { type VarlenFunction, varlenOf } from "./varlen.js";
import { type AttentionVjpFunction, type RunVjpFunction, vjpsOf } from "./vjp.js";

/** The build in use: {plain, relaxed} SIMD, with or without threads. */
export type Variant = "simd" | "relaxed" | "simd-threads" | "relaxed-threads";

/** What an entry of the package has: every mechanism ("heed"), every gradient too ("heed/gradients"), or less ("heed/core"). */
export type Build = "full" | "gradients" | "core";

/** What `load()` chose, and why. */
export interface Choice {
  readonly variant: Variant;
  readonly threads: number;
  readonly simd: "plain" | "relaxed";
  readonly reasons: { readonly threads: string; readonly simd: string };
}

/** Tensors of a call by name: q, k, v, keep, keyLengths, ...; `captured` has tensors by names of its own. */
export type RunInputs = Readonly<
  Record<string, TensorArgument | Readonly<Record<string, TensorArgument>> | undefined>
>;

/** Elements with a shape, as the oracle takes them too. */
export interface Float64Data {
  readonly data: Float64Array;
  readonly shape: readonly number[];
}

type ReferenceArgument = TensorArgument | Float64Array | Float64Data;

/** What `heed.reference` takes in place of `RunInputs`. */
export type ReferenceInputs = Readonly<
  Record<string, ReferenceArgument | Readonly<Record<string, ReferenceArgument>> | undefined>
>;

/** The rest of a call by name: the mechanism's `params`, `window` and `layout`. */
export type RunParams = Readonly<Record<string, unknown>>;

/** What `heed.run` returns; fields other than `output` are present when they were asked for. */
export interface RunResult<R = Tensor<"float32"> | PlainTensor<"float32">, Output = R> {
  /** In the element type of q: float32, float16 or bfloat16. */
  readonly output: Output;
  readonly lse?: R;
  readonly weights?: R;
  readonly scores?: R;
  readonly state?: R;
  /** `returnResidual` of `nystrom`. */
  readonly residual?: R;
  /** `returnProjection` of `performer`. */
  readonly projection?: R;
  /** `returnTiles` of `flash`, each [batch, heads, q_len or 1, tiles]. */
  readonly runningMax?: R;
  readonly runningSum?: R;
  readonly rescale?: R;
}

/** What options of a call by name ask for. */
interface FieldsOfOptions {
  readonly returnLse: "lse";
  readonly returnWeights: "weights";
  readonly returnScores: "scores";
  readonly returnState: "state";
  readonly returnResidual: "residual";
  readonly returnProjection: "projection";
  readonly returnTiles: "runningMax" | "runningSum" | "rescale";
}

/** The fields that are surely there. */
type AskedFields<P> = {
  [option in keyof FieldsOfOptions]: Asked<P, option, "there", 1> extends { readonly there: 1 }
    ? FieldsOfOptions[option]
    : never;
}[keyof FieldsOfOptions];

/** Results of a call by name, where fields that its parameters P ask for are not optional. */
export type WithAsked<T, P> = [AskedFields<P>] extends [never]
  ? T
  : Omit<T, AskedFields<P>> & {
      readonly [field in Extract<AskedFields<P>, keyof T>]-?: Exclude<T[field], undefined>;
    };

/** The output of a call by name: stored as q is, or v where there is no q. */
export type RunOutput<I> = string extends keyof I
  ? StoredOutput<TensorArgument>
  : I extends { readonly q: infer Q }
    ? StoredOutput<Q>
    : I extends { readonly v: infer V }
      ? StoredOutput<V>
      : Tensor<"float32"> | PlainTensor<"float32">;

type StoredOutput<Q> = Tensor<OutputDType<Q>> | PlainTensor<OutputDType<Q>>;

export interface AttentionFunction {
  /**
   * Exact attention: softmax(scale * q k^T + bias) v over the keys that are kept.
   *
   * q [batch, heads, q_len, head_dim], k [batch, kv_heads, kv_len, head_dim],
   * v [batch, kv_heads, kv_len, head_dim_v]; heads is a multiple of kv_heads (query head h uses KV head
   * floor(h / (heads / kv_heads))). Rank 3 is [batch, len, dim], rank 2 [len, dim]. A query that sees no
   * key gives output 0, weights 0 and lse -Infinity. Throws HeedError. Runs synchronously.
   */
  <
    const Q extends MatrixArgument,
    const K extends MatrixArgument,
    const V extends MatrixArgument,
    const O extends AttentionOptions = Record<never, never>,
  >(
    q: Q,
    k: K,
    v: V,
    options?: O & OnlyKnown<O>,
  ): AttentionResult<Q, K, V, O>;
  /** The same with gradients. */
  readonly vjp: AttentionVjpFunction;
}

export interface RunFunction {
  /** Runs any mechanism of `heed.mechanisms`. Throws HeedError. */
  <const I extends RunInputs, const P extends RunParams = Record<never, never>>(
    id: string,
    inputs: I,
    params?: P,
  ): WithAsked<RunResult<Tensor<"float32"> | PlainTensor<"float32">, RunOutput<I>>, P>;
  /** The same with gradients. */
  readonly vjp: RunVjpFunction;
}

/** What `load()` hands to a new instance. @internal */
export interface HeedParts {
  heap: Heap<KernelGlue>;
  registry: Registry;
  choice: Choice;
  build: Build;
  version: string;
  /** Loads the oracle's module, at most once. */
  loadReference: () => Promise<Heap<ReferenceGlue>>;
}

/** A loaded instance of heed, from `load()`. */
export class Heed {
  readonly version: string;
  /**
   * "full" has every mechanism, "gradients" (`import "heed/gradients"`) their gradients too, "core"
   * (`import "heed/core"`) exact attention, layers and positions.
   */
  readonly build: Build;
  readonly variant: Variant;
  /** How many threads work on a call; `reasons.threads` says why. */
  readonly threads: number;
  /** Which SIMD build is in use; `reasons.simd` says why. */
  readonly simd: "plain" | "relaxed";
  readonly reasons: { readonly threads: string; readonly simd: string };

  readonly tensor: TensorFunction;
  readonly attention: AttentionFunction;
  readonly run: RunFunction;
  /** Which keys each query sees, as a picture of ones and zeros. */
  readonly explain: ExplainFunction;
  /** Work and memory of a call of `run`, before it is made. */
  readonly estimateCost: EstimateCostFunction;
  /** A multi-head attention layer; loads the weights of PyTorch and Keras. */
  readonly MultiHeadAttention: MultiHeadAttentionConstructor;
  /** Self-attention and a feed-forward network; loads PyTorch's encoder layers. */
  readonly TransformerBlock: TransformerBlockConstructor;
  /** Embedding, self-attention, pooling, linear map: logits of token sequences. */
  readonly AttentionClassifier: AttentionClassifierConstructor;
  /** DeepSeek's attention over latent rows; loads its weights. */
  readonly MultiHeadLatentAttention: MultiHeadLatentAttentionConstructor;
  /** x weight^T + bias, weight [out_dim, in_dim]. */
  readonly linear: ProductFunctions["linear"];
  /** Products of batches of matrices. */
  readonly bmm: ProductFunctions["bmm"];
  /** exp(x) / sum exp(x) along an axis. */
  readonly softmax: RowFunctions["softmax"];
  /** The logarithm of softmax. */
  readonly logSoftmax: RowFunctions["logSoftmax"];
  /** Softmax of rows with lengths and masks. */
  readonly maskedSoftmax: RowFunctions["maskedSoftmax"];
  /** Rows without their mean and deviation. */
  readonly layerNorm: RowFunctions["layerNorm"];
  /** Rows over their root mean square. */
  readonly rmsNorm: RowFunctions["rmsNorm"];
  /** Keys and values of the tokens so far: append, attend, rewind, fork. */
  readonly KvCache: KvCacheConstructor;
  /** Attention over packed sequences, by offsets. */
  readonly attentionVarlen: VarlenFunction;
  /** Entropy, top weights, distances, column sums: see `AnalyzeFunction`. */
  readonly analyze: AnalysisFunctions["analyze"];
  readonly weightsTile: AnalysisFunctions["weightsTile"];
  readonly headSimilarity: AnalysisFunctions["headSimilarity"];
  readonly rollout: AnalysisFunctions["rollout"];
  readonly attentionFlow: AnalysisFunctions["attentionFlow"];
  readonly multiHop: AnalysisFunctions["multiHop"];
  readonly erasure: AnalysisFunctions["erasure"];
  readonly attribution: AnalysisFunctions["attribution"];
  readonly headImportance: AnalysisFunctions["headImportance"];
  readonly pruneHeads: AnalysisFunctions["pruneHeads"];
  /** Joins attention over parts of the keys. */
  readonly merge: AnalysisFunctions["merge"];
  /** Turns queries or keys by their positions. */
  readonly rope: PositionFunctions["rope"];
  /** RoPE that decays with the distance. */
  readonly xpos: PositionFunctions["xpos"];
  /** The table of sines and cosines. */
  readonly sinusoidal: PositionFunctions["sinusoidal"];
  /** Adds rows of a table. */
  readonly learnedPosition: PositionFunctions["learnedPosition"];
  readonly t5Bucket: PositionFunctions["t5Bucket"];
  readonly lastN: typeof lastN = lastN;
  readonly keepFromDropMask: typeof keepFromDropMask = keepFromDropMask;
  readonly keepFromCoo: typeof keepFromCoo = keepFromCoo;
  readonly keepFromCsr: typeof keepFromCsr = keepFromCsr;
  readonly documentsFromCuSeqlens: typeof documentsFromCuSeqlens = documentsFromCuSeqlens;
  readonly alibiSlopes: typeof alibiSlopes = alibiSlopes;

  readonly #parts: HeedParts;

  /** @internal */
  constructor(parts: HeedParts) {
    const { heap, registry, choice } = parts;
    this.#parts = parts;
    this.version = parts.version;
    this.build = parts.build;
    this.variant = choice.variant;
    this.threads = choice.threads;
    this.simd = choice.simd;
    this.reasons = choice.reasons;
    this.tensor = ((data: unknown, shape?: unknown, options?: unknown) =>
      newTensor(heap, data, shape, options)) as unknown as TensorFunction;
    this.MultiHeadAttention = multiHeadAttentionOf(heap, registry);
    this.TransformerBlock = transformerBlockOf(heap, registry);
    this.AttentionClassifier = attentionClassifierOf(heap, registry);
    this.MultiHeadLatentAttention = multiHeadLatentAttentionOf(heap, registry);
    const { linear, bmm } = productFunctions(heap);
    this.linear = linear;
    this.bmm = bmm;
    const rows = rowFunctions(heap);
    this.softmax = rows.softmax;
    this.logSoftmax = rows.logSoftmax;
    this.maskedSoftmax = rows.maskedSoftmax;
    this.layerNorm = rows.layerNorm;
    this.rmsNorm = rows.rmsNorm;
    this.KvCache = kvCacheOf(heap, registry);
    this.attentionVarlen = varlenOf(heap, registry);
    const names = optionNames(registry);
    const prepareAttention = (q: unknown, k: unknown, v: unknown, options: unknown): Request => {
      const { inputs, params } = splitOptions(names, options);
      return prepare(registry, ATTENTION_ID, { q, k, v, ...inputs }, params);
    };
    const attention = (q: unknown, k: unknown, v: unknown, options?: unknown) => {
      heap.checkUsable();
      return execute(heap, prepareAttention(q, k, v, options));
    };
    const run = (id: unknown, inputs: unknown, params?: unknown) => {
      heap.checkUsable();
      return execute(heap, prepare(registry, id, inputs, params));
    };
    const vjp = vjpsOf(heap, registry, this.build, prepareAttention);
    this.attention = Object.assign(attention, {
      vjp: vjp.attention,
    }) as unknown as AttentionFunction;
    this.run = Object.assign(run, { vjp: vjp.run }) as unknown as RunFunction;
    this.explain = explainOf(heap, registry);
    this.estimateCost = estimateCostOf(heap, registry, this.threads);
    const analysis = analysisOf(heap, registry);
    this.analyze = analysis.analyze;
    this.weightsTile = analysis.weightsTile;
    this.headSimilarity = analysis.headSimilarity;
    this.rollout = analysis.rollout;
    this.attentionFlow = analysis.attentionFlow;
    this.multiHop = analysis.multiHop;
    this.erasure = analysis.erasure;
    this.attribution = analysis.attribution;
    this.headImportance = analysis.headImportance;
    this.pruneHeads = analysis.pruneHeads;
    this.merge = analysis.merge;
    const positions = positionsOf(heap, registry);
    this.rope = positions.rope;
    this.xpos = positions.xpos;
    this.sinusoidal = positions.sinusoidal;
    this.learnedPosition = positions.learnedPosition;
    this.t5Bucket = positions.t5Bucket;
  }

  /**
   * Runs the float64 oracle: plain loops, slow on purpose, loaded on first use. Same arguments as
   * `run`; Float64Array inputs are taken too. Results own ordinary memory.
   */
  readonly reference = async (
    id: string,
    inputs: ReferenceInputs,
    params?: RunParams,
  ): Promise<ReferenceResult> => {
    this.#parts.heap.checkUsable();
    const request = prepare(this.#parts.registry, id, inputs, params, { float64: true });
    for (const { source } of request.inputs) detain(source);
    return runReference(await this.#parts.loadReference(), request);
  };

  /** Live tensors, their bytes, and the size of the WebAssembly memory. */
  readonly memory = (): MemoryReport => this.#parts.heap.report();

  /** The one list of mechanisms, in its order. */
  get mechanisms(): readonly Mechanism[] {
    return this.#parts.registry.mechanisms;
  }

  /** Every parameter that a mechanism may take. */
  get parameters(): readonly Parameter[] {
    return this.#parts.registry.parameters;
  }

  /** Ends the instance: its tensors are gone, its threads stop, its memory can be collected. */
  readonly dispose = (): void => {
    const { heap } = this.#parts;
    if (heap.closed) return;
    heap.close();
  };
}
