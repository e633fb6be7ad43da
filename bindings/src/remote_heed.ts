import type {
  AnalyzeOptions,
  AnalyzeResult,
  AttributionOptions,
  AttributionResult,
  ErasureOptions,
  ErasureResult,
  HeadSimilarityOptions,
  HeadSimilarityResult,
} from "./analysis.js";
import type { AttentionOptions, AttentionResult, OnlyKnownOf, ResultTensor } from "./attention.js";
import type { AttentionClassifierMembers } from "./attention_classifier.js";
import type { DType } from "./dtype.js";
import type { ExplainSizes } from "./explain.js";
import type { HalfDType } from "./half.js";
import type { Heed, RunInputs, RunOutput, RunParams, RunResult, WithAsked } from "./heed.js";
import type { CacheAttendOptions, CacheResult, KvCacheMembers } from "./kv_cache.js";
import type { MultiHeadAttentionMembers, MultiHeadForwardOptions } from "./multi_head_attention.js";
import type {
  LatentForwardOptions,
  MultiHeadLatentAttentionMembers,
} from "./multi_head_latent_attention.js";
import type { NestedArray, NestedNumbers } from "./nested.js";
import type { MayBeHalf, TensorOptions } from "./new_tensor.js";
import type { Transfer } from "./remote_arguments.js";
import type { Signal } from "./remote_client.js";
import type { LayerNormOf, LayerNormOptions } from "./rows.js";
import type { MatrixArgument, TensorArgument } from "./source.js";
import type { ArrayOf, KnownFloat16Array, PlainTensor, Tensor, TensorMembers } from "./tensor.js";
import type { TransformerBlockMembers } from "./transformer_block.js";
import type { VarlenOptions, VarlenResult } from "./varlen.js";
import type { AttentionVjp, RunVjp } from "./vjp.js";

/** What every call takes beside its own options; functions without options take it as the last argument. */
export interface CallOptions {
  /**
   * Stops the call: it rejects with the code "aborted". A call that waits is dropped. A call that runs
   * cannot be interrupted: its worker ends, with every tensor, cache and layer in it, and the next call
   * starts a new one.
   */
  readonly signal?: Signal | undefined;
  /**
   * Gives the memory of the arguments to the worker instead of copying it: true for all of it, or the
   * buffers to give. The caller's arrays are detached then. Default false.
   */
  readonly transfer?: Transfer | undefined;
}

/** `[Symbol.asyncDispose]`, where the TypeScript library in use knows it. */
type WithAsyncDispose = SymbolConstructor extends {
  readonly asyncDispose: infer S extends symbol;
}
  ? { readonly [K in S]: () => PromiseLike<void> }
  : unknown;

/** A tensor in the memory of the worker. */
export type RemoteTensor<D extends DType = DType> = {
  readonly dtype: D;
  readonly shape: readonly number[];
  /** A copy of the elements, made at every read. */
  readonly data: Promise<ArrayOf[D]>;
  /** Also true once its worker has ended. */
  readonly disposed: boolean;
  toNested<T = NestedNumbers>(): Promise<T>;
  /** Frees the memory. May be called again. */
  dispose(): Promise<void>;
} & WithAsyncDispose;

/** Everything that is accepted where a tensor is asked for. */
export type RemoteArgument = Exclude<MatrixArgument, Tensor> | RemoteTensor;

/** The same where a typed array is a tensor of one extent. */
type RemoteVector = Exclude<TensorArgument, Tensor> | RemoteTensor;

/** A RemoteTensor as the Tensor that it stands for. */
type There<T> = T extends { dispose(): Promise<void>; readonly dtype: infer D extends DType }
  ? Tensor<D>
  : T;
type OptionsThere<O> = { readonly [K in keyof O]: There<O[K]> };

type Instance =
  | KvCacheMembers
  | MultiHeadAttentionMembers
  | MultiHeadLatentAttentionMembers
  | TransformerBlockMembers
  | AttentionClassifierMembers;

type AnyFunction = (...args: never[]) => unknown;

/** What is sent as it is: numbers in whatever form, and functions, which are refused. */
type AsItIs = NestedArray | ArrayBufferView | AnyFunction;

/** A part of an argument: tensors of the worker stand for tensors, in lists too. */
type SentPart<T> = T extends TensorMembers
  ? RemoteTensor
  : T extends AsItIs
    ? T
    : T extends object
      ? { readonly [K in keyof T]: SentPart<T[K]> }
      : T;

/** An argument of a function of heed, as the function of the worker takes it. */
type Sent<T> = T extends TensorMembers | AsItIs | readonly unknown[]
  ? SentPart<T>
  : T extends object
    ? SentPart<T> & CallOptions
    : T;

/** A function of heed whose work is done in the worker. */
export type RemoteFunction<F extends AnyFunction> = (
  ...args: [...{ [K in keyof Parameters<F>]: Sent<Parameters<F>[K]> }, CallOptions?]
) => Promise<Remote<ReturnType<F>>>;

/** Methods whose results depend on the types of their arguments. */
type RemoteMethod<T, Name> = Name extends "attend"
  ? RemoteAttend
  : Name extends "forward"
    ? T extends MultiHeadAttentionMembers
      ? RemoteMultiHeadForward
      : T extends MultiHeadLatentAttentionMembers
        ? RemoteLatentForward
        : never
    : never;

/** A cache or a layer in the worker: methods and fields give promises. */
export type RemoteObject<T> = {
  readonly [K in Exclude<keyof T, symbol>]: K extends "disposed"
    ? T[K]
    : T[K] extends AnyFunction
      ? [RemoteMethod<T, K>] extends [never]
        ? RemoteFunction<T[K]>
        : RemoteMethod<T, K>
      : Promise<T[K]>;
} & WithAsyncDispose;

/** What the result of a function of heed becomes here. */
export type Remote<T> =
  T extends TensorMembers<infer D>
    ? RemoteTensor<D>
    : T extends Instance
      ? RemoteObject<T>
      : T extends PlainTensor | ArrayBufferView | readonly number[]
        ? T
        : T extends Promise<infer R>
          ? Remote<R>
          : T extends AnyFunction
            ? RemoteFunction<T>
            : T extends readonly (infer E)[]
              ? readonly Remote<E>[]
              : T extends object
                ? { readonly [K in Exclude<keyof T, symbol>]: Remote<T[K]> }
                : T;

/** Options of a call, with tensors of the worker among them. */
type RemoteOptions<T> = { readonly [K in keyof T]: SentPart<T[K]> } & CallOptions;

type Known = RemoteOptions<AttentionOptions>;

/** `heed.attention` of a worker. */
export interface RemoteAttention {
  <
    const Q extends RemoteArgument,
    const K extends RemoteArgument,
    const V extends RemoteArgument,
    const O extends Known = Record<never, never>,
  >(
    q: Q,
    k: K,
    v: V,
    options?: O & OnlyKnownOf<O, Known>,
  ): Promise<Remote<AttentionResult<There<Q>, There<K>, There<V>, OptionsThere<O>>>>;
  readonly vjp: <
    const Q extends RemoteArgument,
    const K extends RemoteArgument,
    const V extends RemoteArgument,
    const O extends Known = Record<never, never>,
  >(
    q: Q,
    k: K,
    v: V,
    options?: O & OnlyKnownOf<O, Known>,
  ) => Promise<Remote<AttentionVjp<There<Q>, There<K>, There<V>, OptionsThere<O>>>>;
}

/** `heed.run` of a worker. */
export interface RemoteRun {
  <const I extends Sent<RunInputs>, const P extends RunParams & CallOptions = Record<never, never>>(
    id: string,
    inputs: I,
    params?: P,
    call?: CallOptions,
  ): Promise<
    Remote<
      WithAsked<
        RunResult<Tensor<"float32"> | PlainTensor<"float32">, RunOutput<OptionsThere<I>>>,
        P
      >
    >
  >;
  readonly vjp: <
    const I extends Sent<RunInputs>,
    const P extends RunParams & CallOptions = Record<never, never>,
  >(
    id: string,
    inputs: I,
    params?: P,
    call?: CallOptions,
  ) => Promise<Remote<WithAsked<RunVjp<OptionsThere<I>>, P>>>;
}

/** `heed.explain` of a worker. */
export interface RemoteExplain {
  <const O extends Known>(
    options: O & OnlyKnownOf<O, Known>,
    sizes: ExplainSizes & CallOptions,
    call?: CallOptions,
  ): Promise<Remote<ResultTensor<readonly [], readonly [], readonly [], OptionsThere<O>, "uint8">>>;
  (
    id: string,
    inputs: Sent<RunInputs>,
    params?: RunParams & CallOptions,
    call?: CallOptions,
  ): Promise<RemoteTensor<"uint8"> | PlainTensor<"uint8">>;
}

/** `heed.layerNorm` of a worker. */
export type RemoteLayerNorm = <
  const X extends RemoteVector,
  const O extends RemoteOptions<LayerNormOptions> = Record<never, never>,
>(
  x: X,
  options?: O & OnlyKnownOf<O, RemoteOptions<LayerNormOptions>>,
  call?: CallOptions,
) => Promise<Remote<LayerNormOf<There<X>, OptionsThere<O>>>>;

/** `heed.analyze` of a worker. */
export type RemoteAnalyze = <
  const Q extends RemoteArgument,
  const K extends RemoteArgument,
  const O extends RemoteOptions<AnalyzeOptions>,
>(
  q: Q,
  k: K,
  options: O & OnlyKnownOf<O, RemoteOptions<AnalyzeOptions>>,
  call?: CallOptions,
) => Promise<Remote<AnalyzeResult<There<Q>, There<K>, OptionsThere<O>>>>;

/** `heed.headSimilarity` of a worker. */
export type RemoteHeadSimilarity = <
  const O extends RemoteOptions<HeadSimilarityOptions> = Record<never, never>,
>(
  q: RemoteArgument,
  k: RemoteArgument,
  options?: O & OnlyKnownOf<O, RemoteOptions<HeadSimilarityOptions>>,
  call?: CallOptions,
) => Promise<Remote<HeadSimilarityResult<O>>>;

/** `heed.erasure` of a worker. */
export type RemoteErasure = <const O extends RemoteOptions<ErasureOptions> = Record<never, never>>(
  q: RemoteArgument,
  k: RemoteArgument,
  v: RemoteArgument,
  options?: O & OnlyKnownOf<O, RemoteOptions<ErasureOptions>>,
  call?: CallOptions,
) => Promise<Remote<ErasureResult<O>>>;

/** `heed.attribution` of a worker. */
export type RemoteAttribution = <
  const O extends RemoteOptions<AttributionOptions> = Record<never, never>,
>(
  q: RemoteArgument,
  k: RemoteArgument,
  v: RemoteArgument,
  gradOutput: RemoteArgument,
  options?: O & OnlyKnownOf<O, RemoteOptions<AttributionOptions>>,
  call?: CallOptions,
) => Promise<Remote<AttributionResult<O>>>;

/** `heed.attentionVarlen` of a worker. */
export type RemoteVarlen = <
  const Q extends RemoteArgument,
  const O extends RemoteOptions<VarlenOptions>,
>(
  q: Q,
  k: RemoteArgument,
  v: RemoteArgument,
  options: O & OnlyKnownOf<O, RemoteOptions<VarlenOptions>>,
  call?: CallOptions,
) => Promise<Remote<VarlenResult<There<Q>, OptionsThere<O>>>>;

/** `attend` of a cache in a worker. */
export type RemoteAttend = <
  const Q extends RemoteArgument,
  const O extends RemoteOptions<CacheAttendOptions> = Record<never, never>,
>(
  q: Q,
  options?: O & OnlyKnownOf<O, RemoteOptions<CacheAttendOptions>>,
  call?: CallOptions,
) => Promise<Remote<CacheResult<There<Q>, OptionsThere<O>>>>;

/** `forward` of a `MultiHeadAttention` in a worker. */
export type RemoteMultiHeadForward = <
  const Q extends RemoteArgument,
  const K extends RemoteArgument = Q,
  const V extends RemoteArgument = K,
  const O extends RemoteOptions<MultiHeadForwardOptions> = Record<never, never>,
>(
  query: Q,
  key?: K,
  value?: V,
  options?: O & OnlyKnownOf<O, RemoteOptions<MultiHeadForwardOptions>>,
  call?: CallOptions,
) => Promise<Remote<AttentionResult<There<Q>, There<K>, There<V>, OptionsThere<O>>>>;

/** `forward` of a `MultiHeadLatentAttention` in a worker. */
export type RemoteLatentForward = <
  const X extends RemoteArgument,
  const O extends RemoteOptions<LatentForwardOptions> = Record<never, never>,
>(
  x: X,
  options?: O & OnlyKnownOf<O, RemoteOptions<LatentForwardOptions>>,
  call?: CallOptions,
) => Promise<Remote<AttentionResult<There<X>, There<X>, There<X>, OptionsThere<O>>>>;

/** Functions whose results depend on the types of their arguments. */
interface RemoteFunctions {
  readonly attention: RemoteAttention;
  readonly run: RemoteRun;
  readonly tensor: RemoteTensorFunction;
  readonly explain: RemoteExplain;
  readonly layerNorm: RemoteLayerNorm;
  readonly analyze: RemoteAnalyze;
  readonly headSimilarity: RemoteHeadSimilarity;
  readonly erasure: RemoteErasure;
  readonly attribution: RemoteAttribution;
  readonly attentionVarlen: RemoteVarlen;
}

/** `heed.tensor` of a worker. */
export interface RemoteTensorFunction {
  <const D extends HalfDType>(
    data: Float32Array | Uint16Array,
    shape: readonly number[],
    options: { readonly dtype: D } & CallOptions,
    call?: CallOptions,
  ): Promise<RemoteTensor<D>>;
  (
    data: Float32Array,
    shape: readonly number[],
    options?: { readonly dtype?: "float32" | undefined } & CallOptions,
    call?: CallOptions,
  ): Promise<RemoteTensor<"float32">>;
  (
    data: Int32Array,
    shape: readonly number[],
    options?: TensorOptions & CallOptions,
    call?: CallOptions,
  ): Promise<RemoteTensor<"int32">>;
  (
    data: Uint8Array,
    shape: readonly number[],
    options?: TensorOptions & CallOptions,
    call?: CallOptions,
  ): Promise<RemoteTensor<"uint8">>;
  (
    data: KnownFloat16Array,
    shape: readonly number[],
    options?: { readonly dtype?: "float16" | undefined } & CallOptions,
    call?: CallOptions,
  ): Promise<RemoteTensor<"float16">>;
  /** Where `dtype` is known when the program runs. */
  <const O extends TensorOptions & CallOptions>(
    data: Float32Array | Uint16Array,
    shape: readonly number[],
    options: O & MayBeHalf<O>,
    call?: CallOptions,
  ): Promise<RemoteTensor>;
  (...args: Parameters<RemoteFunction<Heed["tensor"]>>): Promise<RemoteTensor>;
}

type Constructor = new (...args: never[]) => unknown;

type Member<T> = T extends Constructor
  ? new (
      ...args: [...ConstructorParameters<T>, CallOptions?]
    ) => Promise<Remote<InstanceType<T>>>
  : T extends { readonly vjp: infer V extends AnyFunction } & AnyFunction
    ? RemoteFunction<T> & { readonly vjp: RemoteFunction<V> }
    : T extends AnyFunction
      ? RemoteFunction<T>
      : T;

/** What `spawn()` gives: heed in a worker. Everything that computes returns a promise. */
export type RemoteHeed = {
  readonly [K in Exclude<keyof Heed, keyof RemoteFunctions | "dispose">]: Member<Heed[K]>;
} & RemoteFunctions & {
    /** Ends the worker. What waits for it rejects with the code "disposed". */
    dispose(): Promise<void>;
  } & WithAsyncDispose;
