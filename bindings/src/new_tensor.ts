import { type DType, dtypeOf, isRounded } from "./dtype.js";
import { fail, HeedError } from "./errors.js";
import { type HalfDType, isHalf } from "./half.js";
import { type Heap, Scope } from "./heap.js";
import { firstRow, type NestedArray } from "./nested.js";
import { asRecord, checkNames } from "./option_names.js";
import { checkShape } from "./shape.js";
import {
  place,
  type Reading,
  type Role,
  readData,
  readSource,
  type Source,
  type TensorData,
} from "./source.js";
import { HeapTensor, isHeapTensor, type KnownFloat16Array, type Tensor } from "./tensor.js";

/** Element types that `heed.tensor` takes by name; "bool" is stored as uint8. */
export type TensorDType = "float32" | "float16" | "bfloat16" | "int32" | "uint8" | "bool";

export interface TensorOptions {
  /**
   * Needed only for plain arrays that are not float32, for a Uint16Array (the bits of halves), and to
   * round a Float32Array to halves.
   */
  readonly dtype?: TensorDType | undefined;
}

type StoredAs<D> = D extends "bool" ? "uint8" : D extends DType ? D : "float32";

/** Nested arrays; a typed array alone has no shape. */
type NestedRows = readonly (NestedArray | number | boolean)[];

/** `unknown` where the options may name a half, else never. */
export type MayBeHalf<O extends TensorOptions> = [Extract<O["dtype"], HalfDType>] extends [never]
  ? never
  : unknown;

/** Makes a tensor in the memory of the instance; the elements are copied. */
export interface TensorFunction {
  /** float32 numbers are rounded to halves; a Uint16Array holds their bits. */
  <const D extends HalfDType>(
    data: Float32Array | Uint16Array,
    shape: readonly number[],
    options: { readonly dtype: D },
  ): Tensor<D>;
  (
    data: Float32Array,
    shape: readonly number[],
    options?: { readonly dtype?: "float32" | undefined },
  ): Tensor<"float32">;
  (data: Int32Array, shape: readonly number[], options?: TensorOptions): Tensor<"int32">;
  (data: Uint8Array, shape: readonly number[], options?: TensorOptions): Tensor<"uint8">;
  (data: readonly boolean[], shape: readonly number[], options?: TensorOptions): Tensor<"uint8">;
  <const O extends TensorOptions = { dtype: "float32" }>(
    data: readonly number[],
    shape: readonly number[],
    options?: O,
  ): Tensor<StoredAs<O["dtype"]>>;
  (
    data: KnownFloat16Array,
    shape: readonly number[],
    options?: { readonly dtype?: "float16" | undefined },
  ): Tensor<"float16">;
  /** Where `dtype` is known when the program runs. */
  <const O extends TensorOptions>(
    data: Float32Array | Uint16Array,
    shape: readonly number[],
    options: O & MayBeHalf<O>,
  ): Tensor;
  /** Nested arrays and `{ data, shape }` bring their shape. */
  (data: NestedRows | TensorData, shape?: readonly number[], options?: TensorOptions): Tensor;
}

const OPTION_NAMES: ReadonlySet<string> = new Set(["dtype"]);

const ROLE_OF: Readonly<Record<string, Role>> = {
  float32: "numbers",
  float16: "numbers",
  bfloat16: "numbers",
  int32: "lengths",
  uint8: "keep",
  bool: "keep",
};

function roleOf(data: unknown, declared: unknown): Role {
  const known = typeof declared === "string" && Object.hasOwn(ROLE_OF, declared);
  if (declared !== undefined && !known) {
    fail(
      "dtype",
      "dtype",
      declared,
      '"float32", "float16", "bfloat16", "int32", "uint8" or "bool"',
    );
  }
  if (ArrayBuffer.isView(data) && !isRounded(data, declared)) {
    const dtype = dtypeOf("data", data, declared);
    return ROLE_OF[dtype] ?? "numbers";
  }
  if (known) return ROLE_OF[declared] as Role;
  return Array.isArray(data) && typeof firstRow(data)?.[0] === "boolean" ? "keep" : "numbers";
}

/** How to read data of a role; plain numbers are stored as declared. */
const toReading = (role: Role, declared: unknown): Reading => ({
  role,
  half: true,
  ...(isHalf(declared) ? { storeAs: declared } : {}),
});

function readNested(data: unknown[], shape: number[], reading: Reading): Source {
  const source = readSource("data", data, reading);
  if (source.shape.join() !== shape.join()) {
    throw new HeedError(
      "shape",
      `shape: got [${shape.join(", ")}], but the nested data has shape [${source.shape.join(", ")}]`,
    );
  }
  return source;
}

function read(data: unknown, shape: unknown, declared: unknown): Source {
  if (data !== null && typeof data === "object" && isHeapTensor(data)) {
    fail("option", "data", data, "data that is not a Tensor yet");
  }
  const isBare = Array.isArray(data) || ArrayBuffer.isView(data);
  if (!isBare && data !== null && typeof data === "object" && shape === undefined) {
    const given = data as Partial<TensorData>;
    const dtype = declared ?? given.dtype;
    const reading = toReading(roleOf(given.data, dtype), dtype);
    return readSource("data", { ...given, dtype }, reading);
  }
  const reading = toReading(roleOf(data, declared), declared);
  if (shape === undefined) return readSource("data", data, reading);
  const extents = checkShape("shape", shape);
  if (Array.isArray(data) && Array.isArray(data[0])) return readNested(data, extents, reading);
  const given = { data, shape: extents, dtype: declared } as TensorData;
  return readData("data", given, reading, "data");
}

export function newTensor(heap: Heap, data: unknown, shape: unknown, options: unknown): HeapTensor {
  heap.checkUsable();
  const given = asRecord("options", options);
  checkNames("options", given, OPTION_NAMES);
  const declared = given.dtype;
  const source = read(data, shape, declared);
  const scope = new Scope(heap);
  try {
    const pointer = place(source, heap, scope);
    scope.keep(pointer);
    return new HeapTensor(heap, pointer, source.dtype, source.shape, source.float16Array);
  } finally {
    scope.free();
  }
}
