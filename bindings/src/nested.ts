import { type DType, type DTypeArray, makeArray } from "./dtype.js";
import { describe, HeedError } from "./errors.js";
import { decodeHalf, encodeHalf, isHalf } from "./half.js";

/** Numbers or booleans in nested arrays; the innermost rows may be typed arrays. */
export type NestedArray = readonly (NestedArray | number | boolean)[] | DTypeArray;

/**
 * What `toNested()` returns where types do not know the rank: arrays nested as deep as it, a plain number for rank 0.
 * It can be read as an array or as a number at every depth; `toNested<number[][]>()` says which it is.
 */
export type NestedNumbers = number & NestedNumbers[];

type Row = readonly number[] | DTypeArray;

/** The numbers of a result that has the rank of an argument. */
export type NestedAs<Q> = unknown extends Q
  ? NestedNumbers
  : [Q] extends [readonly Row[]]
    ? number[][]
    : [Q] extends [readonly (readonly Row[])[]]
      ? number[][][]
      : [Q] extends [readonly (readonly (readonly Row[])[])[]]
        ? number[][][][]
        : NestedNumbers;

/** What the leaves of a nested argument are. */
export type LeafKind = "number" | "boolean";

/** A nested argument as one row-major array. */
export interface Flat {
  shape: number[];
  data: ArrayLike<number | boolean>;
  kind: LeafKind;
}

/** Whether a value is an array or a typed array. */
export const isRow = (value: unknown): value is ArrayLike<unknown> =>
  Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));

/** Arguments have at most so many extents. */
const MOST_LEVELS = 4;

/** The first innermost row of an array; undefined where it is nested too deep, as an array in itself is. */
export function firstRow(value: readonly unknown[]): ArrayLike<unknown> | undefined {
  let row: ArrayLike<unknown> = value;
  for (let level = 0; level < MOST_LEVELS; level++) {
    const first: unknown = row[0];
    if (!isRow(first)) return row;
    row = first;
  }
  return undefined;
}

function measure(argument: string, value: ArrayLike<unknown>): number[] {
  const shape: number[] = [];
  let level: unknown = value;
  while (isRow(level)) {
    shape.push(level.length);
    if (shape.length > MOST_LEVELS) {
      throw new HeedError("shape", `${argument}: nested deeper than ${MOST_LEVELS} levels`);
    }
    level = level[0];
  }
  return shape;
}

/** Copies nested arrays into one row-major array; refuses ragged rows and mixed leaves. */
export function flatten(argument: string, value: ArrayLike<unknown>): Flat {
  const shape = measure(argument, value);
  const data: (number | boolean)[] = [];
  let kind: LeafKind | undefined;
  const visit = (level: unknown, axis: number, path: string): void => {
    if (axis < shape.length) {
      if (!isRow(level) || level.length !== shape[axis]) {
        const got = isRow(level) ? `${level.length} entries` : describe(level);
        throw new HeedError(
          "shape",
          `${path}: got ${got}, expected ${shape[axis]} entries like its siblings`,
        );
      }
      for (let i = 0; i < level.length; i++) visit(level[i], axis + 1, `${path}[${i}]`);
      return;
    }
    if (typeof level !== "number" && typeof level !== "boolean") {
      const code = isRow(level) ? "shape" : "dtype";
      throw new HeedError(code, `${path}: got ${describe(level)}, expected a number or a boolean`);
    }
    kind ??= typeof level as LeafKind;
    if (typeof level !== kind) {
      throw new HeedError("dtype", `${path}: numbers and booleans are mixed`);
    }
    data.push(level);
  };
  visit(value, 0, argument);
  return { shape, data, kind: kind ?? "number" };
}

/** The opposite of `flatten`, for results: numbers, whatever they are stored as. */
export function toNested(
  data: ArrayLike<number>,
  shape: readonly number[],
  dtype: DType,
): NestedNumbers {
  let offset = 0;
  const next = (): number => {
    const stored = data[offset++] as number;
    return isHalf(dtype) ? decodeHalf(dtype, stored) : stored;
  };
  const build = (axis: number): unknown => {
    if (axis === shape.length) return next();
    const row: unknown[] = [];
    for (let i = 0; i < (shape[axis] as number); i++) row.push(build(axis + 1));
    return row;
  };
  return build(0) as NestedNumbers;
}

/** Copies numbers or booleans into a new typed array. */
export function toTyped(dtype: DType, data: ArrayLike<number | boolean>): DTypeArray {
  const typed = makeArray(dtype, data.length);
  for (let i = 0; i < data.length; i++) {
    const number = Number(data[i]);
    typed[i] = isHalf(dtype) ? encodeHalf(dtype, number) : number;
  }
  return typed;
}
