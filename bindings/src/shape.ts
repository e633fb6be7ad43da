import { type DType, ELEMENT_BYTES } from "./dtype.js";
import { describe, fail, HeedError } from "./errors.js";

/** Bytes that a 32-bit WebAssembly memory can hold at the very most. */
export const MAX_BYTES: number = 2 ** 32;

/** Extents are below this: WebAssembly counts in 32 bits, also what has no elements. */
const EXTENT_BOUND = 2 ** 31;

/** Checks an extent given by the caller. */
export function checkExtent(argument: string, extent: unknown): number {
  const isWhole = typeof extent === "number" && Number.isInteger(extent);
  if (!isWhole || extent < 0 || extent >= EXTENT_BOUND) {
    fail("range", argument, extent, "a whole number from 0 to 2^31 - 1");
  }
  return extent;
}

/** Checks a shape given by the caller: 0 to 4 extents. Returns a copy. */
export function checkShape(argument: string, shape: unknown): number[] {
  if (!Array.isArray(shape)) fail("shape", argument, shape, "an array of extents");
  if (shape.length > 4) {
    fail("shape", argument, shape, "at most 4 extents: [batch, heads, len, dim]");
  }
  const copy: number[] = [];
  for (let axis = 0; axis < shape.length; axis++) {
    copy.push(checkExtent(`${argument}[${axis}]`, shape[axis]));
  }
  return copy;
}

/** Number of elements; Infinity-safe because a product past 2^53 only has to be recognised as huge. */
export function countElements(shape: readonly number[]): number {
  return shape.includes(0) ? 0 : shape.reduce((product, extent) => product * extent, 1);
}

/** Bytes of a tensor, refused before anything is allocated when no 32-bit memory can hold it. */
export function checkBytes(argument: string, shape: readonly number[], dtype: DType): number {
  const bytes = countElements(shape) * ELEMENT_BYTES[dtype];
  if (!(bytes < MAX_BYTES)) {
    throw new HeedError(
      "memory",
      `${argument}: shape [${shape.join(", ")}] needs ${bytes} bytes, a 32-bit WebAssembly memory holds at most ${MAX_BYTES}`,
    );
  }
  return bytes;
}

export function checkLength(argument: string, length: number, shape: readonly number[]): void {
  const wanted = countElements(shape);
  if (length !== wanted) {
    throw new HeedError(
      "shape",
      `${argument}: data has ${length} elements, shape [${shape.join(", ")}] needs ${wanted}`,
    );
  }
}

/** Row-major strides in elements. */
export function contiguousStrides(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length);
  let step = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = step;
    step *= shape[axis] as number;
  }
  return strides;
}

export type Layout = "bhld" | "blhd";

/** Shape and strides of a tensor seen as [batch, heads, len, dim]. */
export interface View4 {
  shape: number[];
  strides: number[];
}

/** Sees rank 4, 3 ([batch, len, dim]) or 2 ([len, dim]) as [batch, heads, len, dim]. */
export function viewAsHeads(argument: string, shape: readonly number[], layout: Layout): View4 {
  const [a = 0, b = 0, c = 0, d = 0] = shape;
  switch (shape.length) {
    case 4: {
      const strides = contiguousStrides(shape);
      if (layout === "bhld") return { shape: [a, b, c, d], strides };
      const [s0 = 0, s1 = 0, s2 = 0, s3 = 0] = strides;
      return { shape: [a, c, b, d], strides: [s0, s2, s1, s3] };
    }
    case 3:
      return viewAsHeads(argument, [a, 1, b, c], "bhld");
    case 2:
      return viewAsHeads(argument, [1, 1, a, b], "bhld");
    default:
      throw new HeedError(
        "shape",
        `${argument}: got rank ${shape.length} (shape ${describe([...shape])}), expected [batch, heads, len, dim], [batch, len, dim] or [len, dim]`,
      );
  }
}

/** Shape of [batch, heads, len, dim] in the rank and layout that the caller speaks. */
export function shapeFromHeads(shape: readonly number[], rank: number, layout: Layout): number[] {
  const [batch = 0, heads = 0, len = 0, dim = 0] = shape;
  if (rank === 2) return [len, dim];
  if (rank === 3) return [batch, len, dim];
  return layout === "bhld" ? [batch, heads, len, dim] : [batch, len, heads, dim];
}
