import { type DType, type DTypeArray, ELEMENT_BYTES } from "./dtype.js";
import { HeedError } from "./errors.js";
import { asFloat16Array } from "./half.js";
import type { Heap } from "./heap.js";
import { type NestedNumbers, toNested } from "./nested.js";
import { countElements } from "./shape.js";

/** `Float16Array`, where the TypeScript library in use knows it. */
export type KnownFloat16Array = typeof globalThis extends {
  readonly Float16Array: { readonly prototype: infer A };
}
  ? A
  : never;

/**
 * The typed array of an element type. float16 and bfloat16 are bits in a Uint16Array; float16 is a
 * Float16Array where the tensor, or the q it was computed from, was made of one.
 */
export interface ArrayOf {
  float32: Float32Array;
  float64: Float64Array;
  int32: Int32Array;
  uint8: Uint8Array;
  float16: Uint16Array | KnownFloat16Array;
  bfloat16: Uint16Array;
}

/** The same, where the array is known to own an ordinary ArrayBuffer (told apart since TypeScript 5.7). */
export interface OwnedArrayOf {
  float32: ReturnType<Float32ArrayConstructor["of"]>;
  float64: ReturnType<Float64ArrayConstructor["of"]>;
  int32: ReturnType<Int32ArrayConstructor["of"]>;
  uint8: ReturnType<Uint8ArrayConstructor["of"]>;
  float16: ReturnType<Uint16ArrayConstructor["of"]> | KnownFloat16Array;
  bfloat16: ReturnType<Uint16ArrayConstructor["of"]>;
}

/** A tensor in the memory of a heed instance, from `heed.tensor()` or from a call that was given one. */
export interface TensorMembers<D extends DType = DType, N = NestedNumbers> {
  readonly dtype: D;
  readonly shape: readonly number[];
  /**
   * The elements in row-major order: a fresh view at every read, which writes through. Read it again
   * after calls into heed instead of storing it: memory growth detaches old views.
   */
  readonly data: ArrayOf[D];
  readonly disposed: boolean;
  /** Nested arrays of numbers. Where types do not know the rank, `toNested<number[][]>()` says it. */
  toNested<T = N>(): T;
  /** Frees the memory. May be called again. */
  dispose(): void;
}

/** `[Symbol.dispose]`, where the TypeScript library in use knows it. */
export type WithDispose = SymbolConstructor extends { readonly dispose: infer S extends symbol }
  ? { readonly [K in S]: () => void }
  : unknown;

export type Tensor<D extends DType = DType, N = NestedNumbers> = TensorMembers<D, N> & WithDispose;

/** A result that owns ordinary memory: its buffer can be transferred. */
export interface PlainTensor<D extends DType = DType, N = NestedNumbers> {
  readonly data: OwnedArrayOf[D];
  readonly shape: readonly number[];
  readonly dtype: D;
  /** Nested arrays of numbers. Where types do not know the rank, `toNested<number[][]>()` says it. */
  toNested<T = N>(): T;
}

/** Where a tensor says what it is. `instanceof` fails where a development server loads this file twice. */
const KIND: unique symbol = Symbol.for("heed.tensor");

const isOfKind = (value: object, kind: string): boolean =>
  (value as { readonly [KIND]?: unknown })[KIND] === kind;

/** What a `Tensor` is at run time. Not exported by the package: `heed.tensor()` makes them. */
export class HeapTensor implements TensorMembers {
  readonly heap: Heap;
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** Whether `data` is a Float16Array. */
  readonly float16Array: boolean;
  readonly #pointer: number;
  #disposed = false;

  /** @internal */
  get [KIND](): string {
    return "heap";
  }

  /** Takes over `pointer`, a block of the heap that holds the elements. */
  constructor(
    heap: Heap,
    pointer: number,
    dtype: DType,
    shape: readonly number[],
    float16Array: boolean = false,
  ) {
    this.heap = heap;
    this.float16Array = float16Array;
    this.#pointer = pointer;
    this.dtype = dtype;
    this.shape = Object.freeze([...shape]);
    heap.tensors++;
    heap.bytes += this.#bytes();
    heap.net.register(this, { pointer, bytes: this.#bytes() }, this);
    // Shape and type say how much of the memory is this tensor's.
    Object.freeze(this);
  }

  get disposed(): boolean {
    return this.#disposed || this.heap.closed;
  }

  get data(): never {
    // Typed by `Tensor<D>`; the class itself does not know D.
    const { elements } = this;
    return (this.float16Array ? asFloat16Array(elements as Uint16Array) : elements) as never;
  }

  /** The elements as they are stored: 16-bit types as bits. */
  get elements(): DTypeArray {
    return this.heap.view(this.dtype, this.pointer("tensor"), countElements(this.shape));
  }

  /** Address of the elements; `argument` names the tensor in the error of a disposed one. */
  pointer(argument: string): number {
    if (this.disposed) throw new HeedError("disposed", `${argument}: this tensor was disposed of`);
    return this.#pointer;
  }

  toNested<T = NestedNumbers>(): T {
    return toNested(this.elements, this.shape, this.dtype) as T;
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.heap.net.unregister(this);
    this.heap.freeTensor(this.#pointer, this.#bytes());
  }

  // `using`, where the engine knows the symbol: typed by `WithDispose`.
  static {
    const symbol = (Symbol as { dispose?: symbol }).dispose;
    if (symbol !== undefined) {
      Object.defineProperty(HeapTensor.prototype, symbol, { value: HeapTensor.prototype.dispose });
    }
  }

  #bytes(): number {
    return countElements(this.shape) * ELEMENT_BYTES[this.dtype];
  }
}

class OwnedTensor {
  readonly data: ArrayBufferView;
  readonly shape: readonly number[];
  readonly dtype: DType;
  readonly #elements: DTypeArray;

  get [KIND](): string {
    return "plain";
  }

  constructor(elements: DTypeArray, shape: readonly number[], dtype: DType, float16Array: boolean) {
    this.#elements = elements;
    this.data = float16Array ? asFloat16Array(elements as Uint16Array) : elements;
    this.shape = shape;
    this.dtype = dtype;
  }

  toNested<T = NestedNumbers>(): T {
    return toNested(this.#elements, this.shape, this.dtype) as T;
  }
}

/** A result that takes over `data`. */
export function plainTensor<D extends DType>(
  data: DTypeArray,
  shape: readonly number[],
  dtype: D,
  float16Array: boolean = false,
): PlainTensor<D> {
  return new OwnedTensor(data, shape, dtype, float16Array) as unknown as PlainTensor<D>;
}

/** Whether a value is a result that owns its memory. */
export const isPlainTensor = (value: object): value is PlainTensor => isOfKind(value, "plain");

/** Whether a value is a tensor in the memory of heed. */
export const isHeapTensor = (value: object): value is HeapTensor => isOfKind(value, "heap");
