import { describe, HeedError } from "./errors.js";
import { type HalfDType, isHalf } from "./half.js";

/** Element types that memory of an instance can hold. */
export type DType = "float32" | "float64" | "int32" | "uint8" | "float16" | "bfloat16";

/** Numbers of heed::DType, in its order. */
export const DTYPE_CODES: Readonly<Record<DType, number>> = {
  float32: 0,
  float64: 1,
  int32: 2,
  uint8: 3,
  float16: 4,
  bfloat16: 5,
};

/** The same, by number. */
export const DTYPE_NAMES = Object.keys(DTYPE_CODES) as readonly DType[];

export const ELEMENT_BYTES: Readonly<Record<DType, number>> = {
  float32: 4,
  float64: 8,
  int32: 4,
  uint8: 1,
  float16: 2,
  bfloat16: 2,
};

/** The typed arrays that correspond to `DType`. */
export type DTypeArray = Float32Array | Float64Array | Int32Array | Uint8Array | Uint16Array;

interface ArrayClass {
  new (length: number): DTypeArray;
  new (buffer: ArrayBufferLike, offset: number, length: number): DTypeArray;
}

const ARRAYS: Readonly<Record<DType, ArrayClass>> = {
  float32: Float32Array,
  float64: Float64Array,
  int32: Int32Array,
  uint8: Uint8Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
};

export function makeView(
  dtype: DType,
  buffer: ArrayBufferLike,
  offset: number,
  length: number,
): DTypeArray {
  return new ARRAYS[dtype](buffer, offset, length);
}

/** A new typed array with memory of its own. */
export function makeArray(dtype: DType, length: number): DTypeArray {
  return new ARRAYS[dtype](length);
}

/** Element type of a typed array, or undefined when heed has no such type. */
function ofClass(name: string): DType | undefined {
  switch (name) {
    case "Float32Array":
      return "float32";
    case "Float64Array":
      return "float64";
    case "Int32Array":
      return "int32";
    case "Float16Array":
      return "float16";
    case "Uint8Array":
    case "Uint8ClampedArray":
      return "uint8";
    default:
      return undefined;
  }
}

/** Class name that holds across realms and for polyfills, unlike instanceof. */
export function className(view: ArrayBufferView): string {
  return (view as ArrayBufferView & { readonly [Symbol.toStringTag]: string })[Symbol.toStringTag];
}

/** Whether numbers of a typed array are rounded to the halves that the caller declares beside it. */
export const isRounded = (view: ArrayBufferView, declared: unknown): declared is HalfDType =>
  isHalf(declared) && className(view) === "Float32Array";

/** Element type of a typed array; `declared` is what the caller wrote beside it. */
export function dtypeOf(argument: string, view: ArrayBufferView, declared?: unknown): DType {
  const name = className(view);
  if (name === "Uint16Array") {
    if (isHalf(declared)) return declared;
    throw new HeedError(
      "dtype",
      `${argument}: got Uint16Array without dtype "float16" or "bfloat16", expected Float32Array`,
    );
  }
  const dtype = ofClass(name);
  if (dtype === undefined) {
    throw new HeedError(
      "dtype",
      `${argument}: got ${name}, expected Float32Array (numbers), Uint8Array (keep) or Int32Array (lengths)`,
    );
  }
  const wanted = declared === "bool" ? "uint8" : declared;
  if (wanted !== undefined && wanted !== dtype) {
    throw new HeedError("dtype", `${argument}: dtype ${describe(declared)} does not fit a ${name}`);
  }
  return dtype;
}
