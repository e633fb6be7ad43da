import {
  className,
  type DType,
  type DTypeArray,
  dtypeOf,
  ELEMENT_BYTES,
  isRounded,
} from "./dtype.js";
import { fail, HeedError } from "./errors.js";
import { type HalfDType, isHalf } from "./half.js";
import type { Heap, Scope } from "./heap.js";
import { flatten, isRow, type LeafKind, type NestedArray, toTyped } from "./nested.js";
import { checkBytes, checkLength, checkShape, countElements } from "./shape.js";
import { type HeapTensor, isHeapTensor, type KnownFloat16Array, type Tensor } from "./tensor.js";

/** Typed arrays that are taken: numbers, booleans, whole numbers, bits of halves beside their `dtype`. */
export type TensorElements =
  | Float32Array
  | Int32Array
  | Uint8Array
  | Uint8ClampedArray
  | Uint16Array
  | KnownFloat16Array;

/** Elements with a shape, as other libraries hand them out too. */
export interface TensorData {
  readonly data: TensorElements | readonly number[] | readonly boolean[];
  readonly shape: readonly number[];
  readonly dtype?: string;
}

/** What is accepted where a tensor of at least two extents is asked for: a typed array has no shape. */
export type MatrixArgument = Tensor | TensorData | readonly (NestedArray | number | boolean)[];

/** Everything that is accepted where a tensor is asked for; a typed array is one of one extent. */
export type TensorArgument = MatrixArgument | Exclude<TensorElements, Uint16Array>;

/** The typed array that holds the elements of an argument. */
type ElementsOf<X> = X extends ArrayBufferView
  ? X
  : X extends { readonly data: infer D }
    ? D
    : never;

/** What X has to be beside itself where its elements are surely not of the role. */
type Refused<X, Bad> = [ElementsOf<X>] extends [never]
  ? unknown
  : unknown extends ElementsOf<X>
    ? unknown
    : [ElementsOf<X>] extends [Bad]
      ? never
      : unknown;

/** Never for a typed array that always throws where booleans are asked for. */
export type AsKeep<X> = X extends unknown
  ? Refused<X, Float32Array | Int32Array | Uint16Array | KnownFloat16Array>
  : never;

/** The same of whole numbers. */
export type AsLengths<X> = X extends unknown
  ? Refused<X, Float32Array | Uint8Array | Uint8ClampedArray | Uint16Array | KnownFloat16Array>
  : never;

/** What an argument is for decides which element types it may have. */
export type Role = "numbers" | "keep" | "lengths";

/** A tensor argument in a form that can be placed in memory. */
export interface Source {
  name: string;
  dtype: DType;
  shape: readonly number[];
  /** Present when the elements already live in the memory of the instance. */
  tensor?: HeapTensor;
  data?: DTypeArray;
  /** Where a caller's array lay when it was read. */
  place?: { readonly buffer: ArrayBufferLike; readonly byteOffset: number };
  /** The elements came as a Float16Array: results that follow it do too. */
  float16Array?: boolean;
}

/** How to read an argument. */
export interface Reading {
  role: Role;
  /** A bare typed array is a vector: `sinks`, `keyLengths`. */
  vector?: boolean;
  /** The oracle takes float64 numbers. */
  float64?: boolean;
  /** float16 and bfloat16 are taken as well. */
  half?: boolean;
  /** What plain numbers are stored as instead of float32. */
  storeAs?: HalfDType;
}

const ROLE_DTYPE: Readonly<Record<Role, DType>> = {
  numbers: "float32",
  keep: "uint8",
  lengths: "int32",
};

const EXPECTED: Readonly<Record<Role, string>> = {
  numbers: "Float32Array or nested arrays of numbers",
  keep:
    "booleans or a Uint8Array, where true means the query may attend to the key " +
    "(numbers that are added to the scores go to `bias`; keepFromDropMask() converts a mask where true means hidden)",
  lengths: "Int32Array or whole numbers",
};

function checkDType(name: string, dtype: DType, reading: Reading): void {
  if (dtype === ROLE_DTYPE[reading.role]) return;
  if (isHalf(dtype) && reading.role === "numbers") {
    if (reading.half) return;
    throw new HeedError(
      "dtype",
      `${name}: got ${dtype}, expected Float32Array here; float16 and bfloat16 are for q, k and v of exact attention, and for caches`,
    );
  }
  if (dtype === "float64" && reading.role === "numbers") {
    if (reading.float64) return;
    throw new HeedError(
      "dtype",
      `${name}: got Float64Array, expected Float32Array: kernels compute in float32; convert with Float32Array.from(data), or call heed.reference() for float64`,
    );
  }
  throw new HeedError("dtype", `${name}: got ${dtype}, expected ${EXPECTED[reading.role]}`);
}

function isDetached(view: ArrayBufferView): boolean {
  if (view.byteLength > 0) return false;
  try {
    new Uint8Array(view.buffer);
    return false;
  } catch {
    return true;
  }
}

export function checkAttached(name: string, view: ArrayBufferView): void {
  if (isDetached(view)) {
    throw new HeedError("disposed", `${name}: its buffer was transferred away (detached)`);
  }
}

/** Reads a list: an array, or a typed array that is still there. */
export function readList(
  argument: string,
  value: unknown,
  expectation: string,
): ArrayLike<unknown> {
  if (!isRow(value)) fail("option", argument, value, expectation);
  if (ArrayBuffer.isView(value)) checkAttached(argument, value);
  return value;
}

/** The bytes of a file that a caller gave; undefined for anything else. */
export function bytesOf(name: string, file: unknown): Uint8Array | undefined {
  if (ArrayBuffer.isView(file)) {
    checkAttached(name, file);
    return new Uint8Array(file.buffer, file.byteOffset, file.byteLength);
  }
  if (!(file instanceof ArrayBuffer)) return undefined;
  try {
    return new Uint8Array(file);
  } catch (cause) {
    throw new HeedError("disposed", `${name}: it was transferred away (detached)`, { cause });
  }
}

/** Converts plain numbers or booleans to the element type of the role. */
function fromPlain(
  name: string,
  data: ArrayLike<number | boolean>,
  kind: LeafKind,
  reading: Reading,
): DTypeArray {
  const { role } = reading;
  if (role !== "keep" && kind === "boolean") {
    fail("dtype", name, "booleans", EXPECTED[role]);
  }
  for (let i = 0; role !== "numbers" && i < data.length; i++) {
    const value = data[i];
    if (role === "keep" && value !== 0 && value !== 1 && typeof value !== "boolean") {
      fail("dtype", name, value, EXPECTED.keep);
    }
    if (role === "lengths" && !(Number.isInteger(value) && Math.abs(value as number) < 2 ** 31)) {
      fail("range", name, value, "whole numbers");
    }
  }
  return toTyped(plainDType(reading), data);
}

/** What plain numbers or booleans are stored as. */
const plainDType = ({ role, storeAs }: Reading): DType => storeAs ?? ROLE_DTYPE[role];

function readTyped(name: string, view: ArrayBufferView, declared: unknown, reading: Reading) {
  checkAttached(name, view);
  if (isRounded(view, declared)) {
    checkDType(name, declared, reading);
    return { dtype: declared, data: toTyped(declared, view as Float32Array) };
  }
  const dtype = dtypeOf(name, view, declared);
  checkDType(name, dtype, reading);
  const { buffer, byteOffset, byteLength } = view;
  const place = { buffer, byteOffset };
  if (dtype !== "float16" || className(view) !== "Float16Array") {
    return { dtype, data: view as DTypeArray, place };
  }
  const data = new Uint16Array(buffer, byteOffset, byteLength / 2);
  return { dtype, data, place, float16Array: true };
}

/** How to read plain numbers beside which the caller wrote `declared`. */
function readDeclared(name: string, declared: unknown, reading: Reading): Reading {
  const { role } = reading;
  if (isHalf(declared) && role === "numbers") {
    checkDType(name, declared, reading);
    return { ...reading, storeAs: declared };
  }
  const wanted = declared === "bool" ? "uint8" : declared;
  if (wanted !== undefined && wanted !== ROLE_DTYPE[role]) {
    fail("dtype", `${name}.dtype`, declared, `${JSON.stringify(ROLE_DTYPE[role])} here`);
  }
  return reading;
}

/** Reads elements with a shape; `inner` is what errors call the elements. */
export function readData(
  name: string,
  value: TensorData,
  reading: Reading,
  inner: string = `${name}.data`,
): Source {
  const shape = checkShape(`${name}.shape`, value.shape);
  const { data, dtype: declared } = value;
  if (ArrayBuffer.isView(data)) {
    const typed = readTyped(name, data, declared, reading);
    checkBytes(name, shape, typed.dtype);
    checkLength(name, typed.data.length, shape);
    return { name, shape, ...typed };
  }
  if (!Array.isArray(data)) fail("dtype", inner, data, EXPECTED[reading.role]);
  const plain = readDeclared(name, declared, reading);
  const dtype = plainDType(plain);
  checkBytes(name, shape, dtype);
  const flat = flatten(inner, data);
  if (flat.shape.length > 1) fail("shape", inner, data, "a flat array beside `shape`");
  checkLength(name, flat.data.length, shape);
  return { name, shape, dtype, data: fromPlain(name, flat.data, flat.kind, plain) };
}

function readTensor(name: string, tensor: HeapTensor, reading: Reading): Source {
  tensor.pointer(name);
  checkDType(name, tensor.dtype, reading);
  const { dtype, shape, float16Array } = tensor;
  return { name, dtype, shape, tensor, float16Array };
}

/** Reads a tensor argument and checks its form. Nothing is copied into the instance yet. */
export function readSource(name: string, value: unknown, reading: Reading): Source {
  // Not `instanceof`: a tensor of `heed/inline` is one for `heed` too, and is copied.
  if (value !== null && typeof value === "object" && isHeapTensor(value)) {
    return readTensor(name, value, reading);
  }
  if (ArrayBuffer.isView(value) && className(value) !== "DataView") {
    if (!reading.vector) {
      const typed = readTyped(name, value, undefined, reading);
      fail("shape", name, typed.data, "a shape beside the typed array: { data, shape }");
    }
    const typed = readTyped(name, value, undefined, reading);
    return { name, shape: [typed.data.length], ...typed };
  }
  if (Array.isArray(value)) {
    const flat = flatten(name, value);
    return {
      name,
      dtype: plainDType(reading),
      shape: flat.shape,
      data: fromPlain(name, flat.data, flat.kind, reading),
    };
  }
  if (value !== null && typeof value === "object" && "data" in value && "shape" in value) {
    return readData(name, value as TensorData, reading);
  }
  fail("option", name, value, "a Tensor, { data, shape } or nested arrays");
}

/**
 * The elements as they are now. A view of the memory of `heap` is taken anew: it is detached when the
 * memory has grown since. A buffer that has gone, or shrunk, is refused.
 */
function presentElements(source: Source, length: number, heap: Heap): DTypeArray {
  const { name, dtype, tensor, data, place } = source;
  if (tensor !== undefined) return tensor.elements;
  if (place && heap.owns(place.buffer)) return heap.view(dtype, place.byteOffset, length);
  const array = data as DTypeArray;
  checkAttached(name, array);
  if (array.length !== length) {
    const sizes = `its array has ${array.length} elements now, and had ${length} when the call began`;
    throw new HeedError("disposed", `${name}: ${sizes}`);
  }
  return array;
}

/** Address of the elements in `heap`; what is not there yet is copied into the scope. */
export function place(source: Source, heap: Heap, scope: Scope): number {
  const { name, dtype, tensor } = source;
  if (tensor !== undefined && tensor.heap === heap) return tensor.pointer(name);
  const length = countElements(source.shape);
  const pointer = scope.allocate(name, length * ELEMENT_BYTES[dtype]);
  if (length > 0) heap.view(dtype, pointer, length).set(presentElements(source, length, heap));
  return pointer;
}

/** Copies the elements out of the caller's hands, for a call that goes on later. */
export function detain(source: Source): void {
  source.data = elements(source).slice();
  delete source.tensor;
  delete source.place;
}

/** The elements of a source, wherever they are. */
export function elements(source: Source): DTypeArray {
  return source.tensor === undefined ? (source.data as DTypeArray) : source.tensor.elements;
}
