import type { DType } from "./dtype.js";
import type { HalfDType } from "./half.js";
import type { PatternOptions } from "./keep_options.js";
import type { NestedAs, NestedNumbers } from "./nested.js";
import { asRecord, checkNames } from "./option_names.js";
import type { RopeScaling } from "./position.js";
import type { Registry } from "./registry.js";
import type { Layout } from "./shape.js";
import type { AsKeep, AsLengths, MatrixArgument, TensorArgument } from "./source.js";
import type { KnownFloat16Array, PlainTensor, Tensor } from "./tensor.js";

/** Visible keys before and after the query's own position, itself excluded; ends inclusive. */
export interface Window {
  /** Whole number >= 0; absent means unlimited. */
  readonly left?: number | undefined;
  readonly right?: number | undefined;
}

/** Position of query 0 among the keys: a number, one per batch entry, or the last tokens. */
export type QueryOffset = number | readonly number[] | "end";

/** The stage at which scores are returned: after the scale, after softcap, after bias and keep. */
export type ScoreStage = "raw" | "capped" | "biased";

/**
 * "dot" scale * q.k; "squared_distance" -scale / 2 * |(q - k) / width|^2; "cosine"
 * scale / temperature * q.k / (|q| |k|); "bilinear" scale * q^T M k; "additive"
 * scale * v^T tanh(W_q q + W_k k + b). `scale` defaults to 1 / sqrt(head_dim) for "dot" and to 1 for
 * the others.
 */
export type Score = "dot" | "squared_distance" | "cosine" | "bilinear" | "additive";

/**
 * Row of a relative table for a key at j and a query at i: "clip" m + clamp(j - i, -m, m) of 2 m + 1;
 * "span" clamp(i - j + k, 0, 2 k - 1) of 2 k; "log_span" the same in DeBERTa v2's buckets.
 */
export type RelativeRows = "clip" | "span" | "log_span";

/**
 * n is the number of keys that a query sees.
 * "softmax" exp(s) / sum exp(s); "kernel_sum" K(u) / sum K(u) with u = |(q - k) / width|, which needs
 * `score: "squared_distance"` and refuses scale, softcap, scoreMod, sinks, bias, alibiSlopes,
 * distanceBias, bucketBias and logGates; "softmax1"
 * exp(s) / (1 + sum exp(s)); "sigmoid" sigmoid(s + sigmoidBias); "relu" max(0, s) / n^lengthPower;
 * "relu_squared" max(0, s)^2 / n^lengthPower; "average" 1 / n, whatever q and k hold; "hard" the first
 * of the largest scores alone; "top_k" softmax over the topK largest; "sparsemax" max(0, s - tau) and
 * "entmax15" max(0, s / 2 - tau)^2, tau such that they sum to 1; "stick_breaking" sigmoid(s) of what
 * later keys left; "cope" softmax of s plus the logit of the key's contextual position.
 */
export type Normalize =
  | "softmax"
  | "kernel_sum"
  | "softmax1"
  | "sigmoid"
  | "relu"
  | "relu_squared"
  | "average"
  | "hard"
  | "top_k"
  | "sparsemax"
  | "entmax15"
  | "stick_breaking"
  | "cope";

/** Weights are zeroed with probability p, and divided by 1 - p otherwise, after the normaliser. */
export interface Dropout {
  /** In [0, 1). */
  readonly p: number;
  /** Which weights: a whole number below 2^53, or a bigint below 2^64. Default 0. */
  readonly seed?: number | bigint | undefined;
}

export type Kernel = "gaussian" | "boxcar" | "triangular" | "epanechnikov" | "constant";

/**
 * Options of `heed.attention`. Every one may be left out; any combination works together, but for what
 * comments refuse.
 */
export interface AttentionOptions extends PatternOptions {
  /** Factor on the score; absent means 1 / sqrt(head_dim) for "dot", else 1. 0 and negative are legal. */
  readonly scale?: number | undefined;
  /** cap * tanh(score / cap), before bias and masks; > 0. */
  readonly softcap?: number | undefined;
  /** Query i sees keys j <= i + queryOffset. */
  readonly causal?: boolean | undefined;
  readonly window?: Window | undefined;
  /** Default 0 when q_len == kv_len; required when they differ and a position matters. */
  readonly queryOffset?: QueryOffset | undefined;
  /** true = may attend; [q_len, kv_len] or broadcasting to [batch, heads, q_len, kv_len]. */
  readonly keep?: MatrixArgument | undefined;
  /** Added to the scores; shapes as `keep`. Exactly -Infinity means not kept. */
  readonly bias?: MatrixArgument | undefined;
  /** [batch] or [batch, q_len] numbers of keys that exist. */
  readonly keyLengths?: TensorArgument | undefined;
  /** [num_heads] logits inside the softmax denominator; 0 gives softmax-off-by-one. */
  readonly sinks?: TensorArgument | undefined;
  /** [num_heads], adds -slope * |i + queryOffset - j|; `alibiSlopes(n)` makes the paper's. */
  readonly alibiSlopes?: TensorArgument | undefined;
  /**
   * Expression of the new score, from score, b, h, qIndex, kvIndex, position (qIndex + queryOffset)
   * and captured tensors: "score - slope[h] * abs(position - kvIndex)". -inf hides the key. Operators
   * as in C; functions abs min max floor sqrt exp log tanh sigmoid sin cos.
   */
  readonly scoreMod?: string | undefined;
  /** Expression, nonzero where the query may attend to the key: "kvIndex <= position". */
  readonly keepMod?: string | undefined;
  /**
   * Expression of the new weight, from prob and the same names without score, after the normaliser
   * and before dropout: "prob * gate[h, kvIndex]". Keys that are not kept stay at 0; `weights` are
   * those it gives, `lse` does not change.
   */
  readonly probMod?: string | undefined;
  /** Tensors that the expressions read: name[index, ...]; outside of one, NaN. */
  readonly captured?: { readonly [name: string]: TensorArgument } | undefined;
  /** Order of the extents of q, k, v and output of rank 4. Default "bhld". */
  readonly layout?: Layout | undefined;
  /** How a query and a key become a number. Default "dot". */
  readonly score?: Score | undefined;
  /** How a row of scores becomes a row of weights. Default "softmax". */
  readonly normalize?: Normalize | undefined;
  /** How many keys `normalize: "top_k"` keeps, >= 1. Default 8. */
  readonly topK?: number | undefined;
  /** Added inside the sigmoid of `normalize: "sigmoid"`. Default -log(kv_len). */
  readonly sigmoidBias?: number | undefined;
  /** "relu" and "relu_squared" divide by the number of visible keys to this power. Default 1. */
  readonly lengthPower?: number | undefined;
  /** [num_positions, head_dim] or [num_heads, num_positions, head_dim], for `normalize: "cope"`. */
  readonly copeTable?: MatrixArgument | undefined;
  /** Off when absent. The same weights are dropped on every machine and for any thread count. */
  readonly dropout?: Dropout | undefined;
  /** Shape of the kernel of `normalize: "kernel_sum"`. Default "gaussian". */
  readonly kernel?: Kernel | undefined;
  /** Width of the distance: one number, one per dimension, or a tensor of them. Default 1. */
  readonly width?: number | readonly number[] | TensorArgument | undefined;
  /** What a cosine is divided by: one number, one per query head, or a tensor of them. Default 1. */
  readonly temperature?: number | readonly number[] | TensorArgument | undefined;
  /** M of "bilinear": [head_dim, head_dim of k], or one per query head. */
  readonly scoreMatrix?: MatrixArgument | undefined;
  /** W_q of "additive": [hidden_dim, head_dim], or one per query head. Absent = identity. */
  readonly queryWeight?: MatrixArgument | undefined;
  /** W_k of "additive": [hidden_dim, head_dim of k], or one per KV head. Absent = identity. */
  readonly keyWeight?: MatrixArgument | undefined;
  /** b of "additive": [hidden_dim]. */
  readonly scoreBias?: TensorArgument | undefined;
  /** v of "additive": [hidden_dim], or one per query head. Absent = all ones. */
  readonly scoreVector?: TensorArgument | undefined;
  /** Vectors that queries meet by distance: [distances, head_dim], or one table per query head. */
  readonly relativeKeys?: MatrixArgument | undefined;
  /** Vectors that keys meet by distance, shapes as `relativeKeys` (DeBERTa). */
  readonly relativeQueries?: MatrixArgument | undefined;
  /** Vectors added to values by distance: [distances, head_dim_v], or one table per query head. */
  readonly relativeValues?: MatrixArgument | undefined;
  /** [num_heads, head_dim], added to queries where they meet keys (Transformer-XL's u). */
  readonly contentBias?: MatrixArgument | undefined;
  /** [num_heads, head_dim], added to queries where they meet `relativeKeys` (v). */
  readonly positionBias?: MatrixArgument | undefined;
  /** Rows of relative tables: 2 m + 1 clipped at m, or 2 k as in DeBERTa v1 or v2. Default "clip". */
  readonly relativeRows?: RelativeRows | undefined;
  /** Distances from here on share the last buckets of "log_span". Default 512. */
  readonly relativeMaxDistance?: number | undefined;
  /** [2 m + 1] or [num_heads, 2 m + 1]: added to scores by key minus query position, clipped. */
  readonly distanceBias?: TensorArgument | undefined;
  /** [num_buckets, num_heads], added to scores by T5's buckets of the distance. */
  readonly bucketBias?: MatrixArgument | undefined;
  /** Whether T5's buckets tell before and after apart. Default "bidirectional". */
  readonly bucketDirection?: "bidirectional" | "causal" | undefined;
  /** Distances from here on share T5's last bucket. Default 128. */
  readonly bucketMaxDistance?: number | undefined;
  /** [batch, num_heads, kv_len] logarithms of forget gates, <= 0; needs `causal`. */
  readonly logGates?: MatrixArgument | undefined;
  /** Temperatures below this are raised to it (Swin v2 has 0.01); > 0. */
  readonly minTemperature?: number | undefined;
  /** Also return the weights, [batch, heads, q_len, kv_len]: O(q_len * kv_len) memory. */
  readonly returnWeights?: boolean | undefined;
  /** Also return the natural log of the softmax denominator, [batch, heads, q_len]. */
  readonly returnLse?: boolean | undefined;
  /** Also return the scores of a stage, [batch, heads, q_len, kv_len]: O(q_len * kv_len) memory. */
  readonly returnScores?: ScoreStage | undefined;
}

/** Whether an argument is a Tensor, is not, or may be. */
export type TensorKind<X> = [X] extends [Tensor]
  ? "resident"
  : [Extract<X, Tensor>] extends [never]
    ? "plain"
    : "either";

/** Options that are tensors: a `Tensor` among them makes the results `Tensor`s. */
type TensorOption = {
  [key in keyof AttentionOptions]-?: Tensor extends AttentionOptions[key] ? key : never;
}[keyof AttentionOptions];

/** What the arguments of a call are, all together. */
export type KindOf<Q, K, V, O> =
  | TensorKind<Q>
  | TensorKind<K>
  | TensorKind<V>
  | { [key in Extract<keyof O, TensorOption>]: TensorKind<O[key]> }[Extract<keyof O, TensorOption>]
  | (O extends { captured: infer X } ? TensorKind<X[keyof X]> : "plain");

/** What a call with arguments of these kinds returns. */
export type ResultOfKind<
  Kind,
  D extends DType = "float32",
  N = NestedNumbers,
> = "resident" extends Kind
  ? Tensor<D, N>
  : "either" extends Kind
    ? Tensor<D, N> | PlainTensor<D, N>
    : PlainTensor<D, N>;

/** Tensor when any tensor argument is one, else PlainTensor. */
export type ResultTensor<Q, K, V, O, D extends DType = "float32", N = NestedNumbers> = ResultOfKind<
  KindOf<Q, K, V, O>,
  D,
  N
>;

/** What has an entry for each query, and for each pair of a query and a key. */
type PerQuery<Q, K, V, O> = ResultTensor<Q, K, V, O, "float32", number[][][]>;
type PerPair<Q, K, V, O> = ResultTensor<Q, K, V, O, "float32", number[][][][]>;

type HalfOrFloat<D> = D extends HalfDType ? D : "float32";

/** Element type of an output, which is stored as q is. */
export type OutputDType<Q> = Q extends { readonly dtype: infer D }
  ? HalfOrFloat<D>
  : [KnownFloat16Array] extends [never]
    ? "float32"
    : Q extends { readonly data: KnownFloat16Array }
      ? "float16"
      : "float32";

/** A field that is there when the option is, not there when it is not, and optional when unknown. */
export type Asked<O, Option extends string, Field extends string, R> = O extends {
  readonly [key in Option]: infer X;
}
  ? [X] extends [false | undefined]
    ? unknown
    : [Extract<X, false | undefined>] extends [never]
      ? boolean extends X
        ? { readonly [key in Field]?: R }
        : { readonly [key in Field]: R }
      : { readonly [key in Field]?: R }
  : Option extends keyof O
    ? { readonly [key in Field]?: R }
    : unknown;

/** The same of an option that is on when it is absent. */
export type NotDeclined<O, Option extends string, Field extends string, R> = O extends {
  readonly [key in Option]: infer X;
}
  ? [X] extends [false]
    ? unknown
    : [Extract<X, false>] extends [never]
      ? { readonly [key in Field]: R }
      : { readonly [key in Field]?: R }
  : Option extends keyof O
    ? { readonly [key in Field]?: R }
    : { readonly [key in Field]: R };

/** What `heed.attention` returns. */
export type AttentionResult<Q, K, V, O> = {
  /** [batch, heads, q_len, head_dim_v], in the rank, layout and element type of q. */
  readonly output: ResultTensor<Q, K, V, O, OutputDType<Q>, NestedAs<Q>>;
} & Asked<O, "returnLse", "lse", PerQuery<Q, K, V, O>> &
  Asked<O, "returnWeights", "weights", PerPair<Q, K, V, O>> &
  Asked<O, "returnScores", "scores", PerPair<Q, K, V, O>>;

type KeysOf<T> = T extends unknown ? keyof T : never;
type Typos<X, Known> = X extends object ? Exclude<keyof X, KeysOf<Known>> : never;

/** `unknown` where there is nothing to refuse, else what makes those names an error. */
type Refusing<Names extends PropertyKey> = [Names] extends [never]
  ? unknown
  : { readonly [name in Names]: never };

/** Options that are objects with names of their own. */
interface InnerOptions {
  readonly window: Window;
  readonly dropout: Dropout;
  readonly scaling: RopeScaling;
  readonly image: { readonly height: number; readonly width: number };
}

type KeepOption = "keep" | "blockKeep";

type LengthsOption =
  | "keyLengths"
  | "prefixLengths"
  | "queryDocuments"
  | "keyDocuments"
  | "globalTokens"
  | "blockIndptr"
  | "blockIndices"
  | "keepPairs"
  | "lengths"
  | "queryLengths"
  | "cuSeqlensQ"
  | "cuSeqlensK"
  | "positions";

/** What the value of an option has to be beyond its type, which is inferred. */
type OptionValue<Key, X> = Key extends keyof InnerOptions
  ? Refusing<Typos<X, InnerOptions[Key]>>
  : Key extends KeepOption
    ? AsKeep<X>
    : Key extends LengthsOption
      ? AsLengths<X>
      : unknown;

type RefusedKeys<O, Known> = {
  [key in keyof O]-?: key extends keyof Known
    ? unknown extends OptionValue<key, O[key]>
      ? never
      : key
    : key;
}[keyof O];

/**
 * Makes a misspelt option, and a typed array that an option always refuses, a type error although the
 * options type is inferred.
 */
export type OnlyKnownOf<O, Known> = {
  readonly [key in RefusedKeys<O, Known>]: key extends keyof Known & keyof O
    ? OptionValue<key, O[key]>
    : never;
};
export type OnlyKnown<O> = OnlyKnownOf<O, AttentionOptions>;

/** The mechanism that `heed.attention` is. */
export const ATTENTION_ID = "attention";

/** Names of options by where they go; everything is known once the registry is. */
export interface OptionNames {
  readonly inputs: ReadonlySet<string>;
  readonly params: ReadonlySet<string>;
  readonly all: ReadonlySet<string>;
}

export function optionNames(registry: Registry): OptionNames {
  const { mechanism, params: callParams } = registry.callNames(ATTENTION_ID);
  const optional = mechanism.inputs.filter((input) => input.optional);
  const inputs = new Set(optional.map(({ name }) => name));
  const params = new Set(callParams);
  // Options have one name: `window`, `dropout`.
  for (const part of ["windowLeft", "windowRight", "dropoutP", "dropoutSeed"]) params.delete(part);
  const all = new Set([...params, ...inputs]);
  return { inputs, params, all };
}

/** Splits the options of `attention` into what `run` calls inputs and params. */
export function splitOptions(
  names: OptionNames,
  given: unknown,
): { inputs: Record<string, unknown>; params: Record<string, unknown> } {
  const inputs: Record<string, unknown> = {};
  const params: Record<string, unknown> = {};
  if (given === undefined) return { inputs, params };
  const options = asRecord("options", given);
  checkNames("options", options, names.all);
  for (const name of Object.keys(options)) {
    // A name that is both is a parameter when it is a plain number.
    const number = typeof options[name] === "number" && names.params.has(name);
    if (names.inputs.has(name) && !number) inputs[name] = options[name];
    else if (names.params.has(name)) params[name] = options[name];
  }
  return { inputs, params };
}
