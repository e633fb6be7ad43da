import type {
  Asked,
  AttentionOptions,
  NotDeclined,
  OnlyKnownOf,
  ResultTensor,
} from "./attention.js";
import type { MatrixArgument, TensorArgument } from "./source.js";
import type { PlainTensor, Tensor } from "./tensor.js";

/** The options of `heed.attention` that say what the weights are. */
export type WeightsOptions = Omit<AttentionOptions, "returnWeights" | "returnLse" | "returnScores">;

/** A run of rows or columns: `[begin, end)`, whole numbers. */
export type Range = readonly [begin: number, end: number];

type Either<D extends "float32" | "uint8" = "float32"> = Tensor<D> | PlainTensor<D>;

/**
 * What `heed.analyze` computes, at least one of it, beside the options of attention. Shapes are of
 * rank 4 q and k.
 */
export interface AnalyzeOptions extends WeightsOptions {
  /** -sum p log p of each row, in nats: [batch, heads, q_len]. */
  readonly entropy?: boolean | undefined;
  /** The largest weight of each row and its key, -1 where there is none: [batch, heads, q_len]. */
  readonly max?: boolean | undefined;
  /** So many of the largest weights of each row and their keys: [batch, heads, q_len, topWeights]. */
  readonly topWeights?: number | undefined;
  /** sum p |i + queryOffset - j| of each row: [batch, heads, q_len]. */
  readonly expectedDistance?: boolean | undefined;
  /** The attention that each key receives: [batch, heads, kv_len]. */
  readonly columnSums?: boolean | undefined;
  /** What heed.attention gave for the same q, k and options: spares the first of two passes. */
  readonly lse?: MatrixArgument | undefined;
  readonly returnLse?: boolean | undefined;
}

export type AnalyzeResult<Q, K, O> = Asked<O, "entropy", "entropy", ResultTensor<Q, K, K, O>> &
  Asked<O, "max", "maxWeight", ResultTensor<Q, K, K, O>> &
  Asked<O, "max", "maxIndex", ResultTensor<Q, K, K, O, "int32">> &
  Asked<O, "topWeights", "topWeights", ResultTensor<Q, K, K, O>> &
  Asked<O, "topWeights", "topIndices", ResultTensor<Q, K, K, O, "int32">> &
  Asked<O, "expectedDistance", "expectedDistance", ResultTensor<Q, K, K, O>> &
  Asked<O, "columnSums", "columnSums", ResultTensor<Q, K, K, O>> &
  Asked<O, "returnLse", "lse", ResultTensor<Q, K, K, O>>;

export interface AnalyzeFunction {
  /**
   * Statistics of the weights of attention, exactly, without the matrix.
   *
   * A row that sees no key has entropy, distance and weights 0 and indices -1; so have places of the
   * top where fewer keys have a weight above 0. Ties go to the lower index. Throws HeedError, also
   * where nothing is asked for.
   */
  <const Q extends MatrixArgument, const K extends MatrixArgument, const O extends AnalyzeOptions>(
    q: Q,
    k: K,
    options: O & OnlyKnownOf<O, AnalyzeOptions>,
  ): AnalyzeResult<Q, K, O>;
}

export interface WeightsTileOptions extends WeightsOptions {
  /** Queries; default all. */
  readonly rows?: Range | undefined;
  /** Keys; default all. */
  readonly columns?: Range | undefined;
}

export interface WeightsTileFunction {
  /**
   * The weights of a rectangle of queries and keys: [batch, heads, rows, columns]. With the lse of
   * heed.attention the cost is that of the rectangle; undefined computes it.
   */
  (
    q: MatrixArgument,
    k: MatrixArgument,
    lse: MatrixArgument | undefined,
    options?: WeightsTileOptions,
  ): { readonly weights: Either };
}

export interface HeadSimilarityOptions extends WeightsOptions {
  /** <A, B> / (|A| |B|). Default true. */
  readonly cosine?: boolean | undefined;
  /** |A - B|. Default false. */
  readonly frobenius?: boolean | undefined;
  /** Mean over queries of the Jensen-Shannon divergence, in nats. Default false. */
  readonly jensenShannon?: boolean | undefined;
}

/** A field for each option that is set or, as `cosine` is, on by default. */
export type HeadSimilarityResult<O> = NotDeclined<O, "cosine", "cosine", Either> &
  Asked<O, "frobenius", "frobenius", Either> &
  Asked<O, "jensenShannon", "jensenShannon", Either>;

export interface HeadSimilarityFunction {
  /** How alike the maps of each pair of heads are: [batch, heads, heads] each. */
  <const O extends HeadSimilarityOptions = Record<never, never>>(
    q: MatrixArgument,
    k: MatrixArgument,
    options?: O & OnlyKnownOf<O, HeadSimilarityOptions>,
  ): HeadSimilarityResult<O>;
}

/** A layer of a stack: its queries and keys, and the options of its attention. */
export interface RolloutLayer extends WeightsOptions {
  readonly q: MatrixArgument;
  readonly k: MatrixArgument;
}

export interface RolloutOptions {
  /** The output tokens to follow back; default all, which is O(len^2) memory. */
  readonly tokens?: readonly number[] | undefined;
  /** Share of the residual connection; default 0.5. */
  readonly residual?: number | undefined;
}

export interface RolloutFunction {
  /**
   * Attention rollout (Abnar & Zuidema 2020): rows of the product of residual I + (1 - residual)
   * mean_h A_h over the layers, the first layer first in the list. [batch, tokens, len].
   */
  (layers: readonly RolloutLayer[], options?: RolloutOptions): { readonly rows: Either };
}

export interface AttentionFlowFunction {
  /**
   * Attention flow (Abnar & Zuidema 2020): the largest flow from each token of `sources` above the
   * last layer to each token below the first, through maps [batch, layers, len, len] or
   * [layers, len, len] of capacities. [batch, sources, len]. layers * len^2 <= 2^20; small inputs only:
   * each pair is a maximum-flow problem.
   */
  (
    maps: MatrixArgument,
    options?: { readonly sources?: readonly number[] | undefined },
  ): { readonly flow: Either };
}

export interface MultiHopFunction {
  /**
   * A^hops x: attention applied again and again. x as q, [batch, heads, len, dim] with any dim; the
   * result has its shape.
   */
  (
    q: MatrixArgument,
    k: MatrixArgument,
    x: MatrixArgument,
    options: WeightsOptions & { readonly hops: number },
  ): { readonly output: Either };
}

export interface ErasureOptions extends WeightsOptions {
  /** Queries; default all. */
  readonly rows?: Range | undefined;
  /** |o - o_without_j| for each key: [batch, heads, rows, kv_len]. Default true. */
  readonly change?: boolean | undefined;
  /** o_without_j itself, of the only query of `rows`: [batch, heads, kv_len, head_dim_v]. */
  readonly without?: boolean | undefined;
}

/** `change` unless it is false, `without` when it is true. */
export type ErasureResult<O> = NotDeclined<O, "change", "change", Either> &
  Asked<O, "without", "without", Either>;

export interface ErasureFunction {
  /** How the output of each query changes when one key is removed, for every key. */
  <const O extends ErasureOptions = Record<never, never>>(
    q: MatrixArgument,
    k: MatrixArgument,
    v: MatrixArgument,
    options?: O & OnlyKnownOf<O, ErasureOptions>,
  ): ErasureResult<O>;
}

export interface AttributionOptions extends WeightsOptions {
  /** Queries that count; default all. */
  readonly rows?: Range | undefined;
  /** Keys that count; default all. */
  readonly columns?: Range | undefined;
  /** Only terms above 0, as in the source. Default false: all. */
  readonly positive?: boolean | undefined;
  /** The sum over queries for each key: [batch, heads, kv_len]. Default true. */
  readonly columnSums?: boolean | undefined;
  /** The pairs of `rows` and `columns` themselves: [batch, heads, rows, columns]. Default false. */
  readonly pairs?: boolean | undefined;
}

/** `columnSums` unless it is false, `pairs` when it is true. */
export type AttributionResult<O> = NotDeclined<O, "columnSums", "columnSums", Either> &
  Asked<O, "pairs", "pairs", Either>;

export interface AttributionFunction {
  /**
   * Gradient times attention, p_ij (gradOutput_i . v_j): by how much each weight matters to a loss
   * whose gradient gradOutput, shaped as the output, arrives at the output of attention. Chefer, Gur &
   * Wolf 2021, arXiv:2103.15679.
   */
  <const O extends AttributionOptions = Record<never, never>>(
    q: MatrixArgument,
    k: MatrixArgument,
    v: MatrixArgument,
    gradOutput: MatrixArgument,
    options?: O & OnlyKnownOf<O, AttributionOptions>,
  ): AttributionResult<O>;
}

export interface HeadImportanceFunction {
  /**
   * The mean over batch and queries of what each head adds to its layer, |o_h W_h|: also by how much the
   * layer changes when the head is ablated. output [batch, heads, len, dim]; `wO` [embed_dim, heads * dim]
   * (PyTorch's out_proj.weight), default the identity. [heads].
   */
  (
    output: MatrixArgument,
    options?: { readonly wO?: TensorArgument | undefined },
  ): { readonly importance: Either };
}

export interface PruneHeadsFunction {
  /** Keeps the most important heads: a `keep` for heed.attention, [1, heads, 1, 1]. */
  (
    importance: TensorArgument,
    options: { readonly numKept: number },
  ): { readonly keep: Either<"uint8"> };
}

/** A partial result: what heed.attention with `returnLse` gives for some of the keys. */
export interface PartialAttention {
  readonly output: MatrixArgument;
  readonly lse: MatrixArgument;
}

export interface MergeFunction {
  /**
   * Attention over all keys from attention over disjoint parts of them, by their lse. A state with
   * lse -Infinity has seen nothing and changes nothing. Associative within rounding.
   */
  (states: readonly PartialAttention[]): { readonly output: Either; readonly lse: Either };
}

/** The analysis of a loaded instance. */
export interface AnalysisFunctions {
  readonly analyze: AnalyzeFunction;
  readonly weightsTile: WeightsTileFunction;
  readonly headSimilarity: HeadSimilarityFunction;
  readonly rollout: RolloutFunction;
  readonly attentionFlow: AttentionFlowFunction;
  readonly multiHop: MultiHopFunction;
  readonly erasure: ErasureFunction;
  readonly attribution: AttributionFunction;
  readonly headImportance: HeadImportanceFunction;
  readonly pruneHeads: PruneHeadsFunction;
  readonly merge: MergeFunction;
}
