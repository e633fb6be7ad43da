import { type DType, dtypeOf } from "./dtype.js";
import { fail, HeedError } from "./errors.js";
import { type Heap, Scope } from "./heap.js";
import type { NestedArray } from "./nested.js";
import { asRecord, checkNames } from "./option_names.js";
import { checkShape } from "./shape.js";
import { place, type Role, readSource, type Source, type TensorData } from "./source.js";
import { HeapTensor, type Tensor } from "./tensor.js";

/** Element types that `heed.tensor` takes by name; "bool" is stored as uint8. */
export type TensorDType = "float32" | "int32" | "uint8" | "bool";

export interface TensorOptions {
  /** Needed only for plain arrays that are not float32. */
  readonly dtype?: TensorDType | undefined;
}

type StoredAs<D> = D extends "bool" ? "uint8" : D extends DType ? D : "float32";

/** Makes a tensor in the memory of the instance; the elements are copied. */
export interface TensorFunction {
  (data: Float32Array, shape: readonly number[], options?: TensorOptions): Tensor<"float32">;
  (data: Int32Array, shape: readonly number[], options?: TensorOptions): Tensor<"int32">;
  (data: Uint8Array, shape: readonly number[], options?: TensorOptions): Tensor<"uint8">;
  (data: readonly boolean[], shape: readonly number[], options?: TensorOptions): Tensor<"uint8">;
  <const O extends TensorOptions = { dtype: "float32" }>(
    data: readonly number[],
    shape: readonly number[],
    options?: O,
  ): Tensor<StoredAs<O["dtype"]>>;
  /** Nested arrays and `{ data, shape }` bring their shape. */
  (data: NestedArray | TensorData, shape?: readonly number[], options?: TensorOptions): Tensor;
}

const OPTION_NAMES: ReadonlySet<string> = new Set(["dtype"]);

const ROLE_OF: Readonly<Record<string, Role>> = {
  float32: "numbers",
  int32: "lengths",
  uint8: "keep",
  bool: "keep",
};

function firstLeaf(value: unknown): unknown {
  let leaf = value;
  while (Array.isArray(leaf)) leaf = leaf[0];
  return leaf;
}

function roleOf(data: unknown, declared: unknown): Role {
  if (declared !== undefined && !Object.hasOwn(ROLE_OF, String(declared))) {
    if (declared === "float16" || declared === "bfloat16") {
      throw new HeedError(
        "dtype",
        `data: ${declared} storage is not part of this version; use float32`,
      );
    }
    fail("dtype", "dtype", declared, '"float32", "int32", "uint8" or "bool"');
  }
  if (ArrayBuffer.isView(data)) {
    const dtype = dtypeOf("data", data, declared);
    return ROLE_OF[dtype] ?? "numbers";
  }
  if (declared !== undefined) return ROLE_OF[String(declared)] as Role;
  return typeof firstLeaf(data) === "boolean" ? "keep" : "numbers";
}

function readNested(data: unknown[], shape: number[], role: Role): Source {
  const source = readSource("data", data, { role });
  if (source.shape.join() !== shape.join()) {
    throw new HeedError(
      "shape",
      `shape: got [${shape.join(", ")}], but the nested data has shape [${source.shape.join(", ")}]`,
    );
  }
  return source;
}

function read(data: unknown, shape: unknown, declared: unknown): Source {
  if (data instanceof HeapTensor) fail("option", "data", data, "data that is not a Tensor yet");
  const isBare = Array.isArray(data) || ArrayBuffer.isView(data);
  if (!isBare && data !== null && typeof data === "object" && shape === undefined) {
    const given = data as Partial<TensorData>;
    return readSource("data", data, { role: roleOf(given.data, declared ?? given.dtype) });
  }
  const role = roleOf(data, declared);
  if (shape === undefined) return readSource("data", data, { role });
  const extents = checkShape("data", shape);
  if (Array.isArray(data) && Array.isArray(data[0])) return readNested(data, extents, role);
  return readSource("data", { data, shape: extents, dtype: declared }, { role });
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
    return new HeapTensor(heap, pointer, source.dtype, source.shape);
  } finally {
    scope.free();
  }
}
