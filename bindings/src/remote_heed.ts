import type { AttentionOptions, AttentionResult, OnlyKnownOf } from "./attention.js";
import type { AttentionClassifierMembers } from "./attention_classifier.js";
import type { DType } from "./dtype.js";
import type { Heed, RunInputs, RunOutput, RunParams, RunResult } from "./heed.js";
import type { KvCacheMembers } from "./kv_cache.js";
import type { MultiHeadAttentionMembers } from "./multi_head_attention.js";
import type { MultiHeadLatentAttentionMembers } from "./multi_head_latent_attention.js";
import type { NestedArray, NestedNumbers } from "./nested.js";
import type { Transfer } from "./remote_arguments.js";
import type { Signal } from "./remote_client.js";
import type { MatrixArgument } from "./source.js";
import type { ArrayOf, PlainTensor, Tensor, TensorMembers } from "./tensor.js";
import type { TransformerBlockMembers } from "./transformer_block.js";
import type { AttentionVjp } from "./vjp.js";

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

/** A cache or a layer in the worker: methods and fields give promises. */
export type RemoteObject<T> = {
  readonly [K in Exclude<keyof T, symbol>]: K extends "disposed"
    ? T[K]
    : T[K] extends AnyFunction
      ? RemoteFunction<T[K]>
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

/** Options of attention, with tensors of the worker among them. */
type RemoteAttentionOptions = { readonly [K in keyof AttentionOptions]: Sent<AttentionOptions[K]> };

type Known = RemoteAttentionOptions & CallOptions;

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
  <const I extends Sent<RunInputs>>(
    id: string,
    inputs: I,
    params?: RunParams & CallOptions,
    options?: CallOptions,
  ): Promise<
    Remote<RunResult<Tensor<"float32"> | PlainTensor<"float32">, RunOutput<OptionsThere<I>>>>
  >;
  readonly vjp: RemoteFunction<Heed["run"]["vjp"]>;
}

/** `heed.tensor` of a worker. */
export interface RemoteTensorFunction {
  (
    data: Float32Array,
    shape: readonly number[],
    options?: CallOptions,
  ): Promise<RemoteTensor<"float32">>;
  (
    data: Int32Array,
    shape: readonly number[],
    options?: CallOptions,
  ): Promise<RemoteTensor<"int32">>;
  (
    data: Uint8Array,
    shape: readonly number[],
    options?: CallOptions,
  ): Promise<RemoteTensor<"uint8">>;
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
  readonly [K in Exclude<keyof Heed, "attention" | "run" | "tensor" | "dispose">]: Member<Heed[K]>;
} & {
  readonly attention: RemoteAttention;
  readonly run: RemoteRun;
  readonly tensor: RemoteTensorFunction;
  /** Ends the worker. What waits for it rejects with the code "disposed". */
  dispose(): Promise<void>;
} & WithAsyncDispose;
