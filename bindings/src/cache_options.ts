import { DTYPE_CODES } from "./dtype.js";
import { fail } from "./errors.js";

/** What a cache stores its numbers as. The last two have one float32 scale per token and head. */
export type CacheDType = "float32" | "float16" | "bfloat16" | "int8" | "float8_e4m3";

/** Options that are whole numbers. */
export const CACHE_COUNTS = [
  "batch",
  "numKvHeads",
  "headDim",
  "headDimV",
  "capacity",
  "blockSize",
  "recentTokens",
  "sinkTokens",
  "heavyTokens",
  "pageSize",
] as const;

export type CacheSizes = Record<(typeof CACHE_COUNTS)[number], number>;

/** Numbers of heed::DType. */
const CACHE_DTYPES: Readonly<Record<CacheDType, number>> = {
  float32: DTYPE_CODES.float32,
  float16: DTYPE_CODES.float16,
  bfloat16: DTYPE_CODES.bfloat16,
  int8: 6,
  float8_e4m3: 7,
};

const MOST = 2 ** 31 - 1;

export function checkCount(
  name: string,
  value: unknown,
  least: number,
  most: number = MOST,
): number {
  if (typeof value !== "number") fail("option", name, value, "a whole number");
  if (!Number.isInteger(value) || value < least || value > most) {
    fail("range", name, value, `a whole number from ${least} to ${most}`);
  }
  return value;
}

/** Reads the sizes of a cache, and refuses what does not go together. */
export function readCacheSizes(options: Record<string, unknown>): CacheSizes {
  const count = (name: keyof CacheSizes, least: number, otherwise?: number): number =>
    checkCount(name, options[name] === undefined ? otherwise : options[name], least);
  const headDim = count("headDim", 1);
  const sizes: CacheSizes = {
    batch: count("batch", 1, 1),
    numKvHeads: count("numKvHeads", 1),
    headDim,
    headDimV: count("headDimV", 1, headDim),
    capacity: options.capacity === undefined ? 0 : count("capacity", 1),
    blockSize: options.blockSize === undefined ? 0 : count("blockSize", 1),
    recentTokens: options.recentTokens === undefined ? 0 : count("recentTokens", 1),
    sinkTokens: count("sinkTokens", 0, 0),
    heavyTokens: count("heavyTokens", 0, 0),
    pageSize: options.pageSize === undefined ? 0 : count("pageSize", 1),
  };
  checkSizes(sizes);
  return sizes;
}

/** What does not go together. */
function checkSizes(sizes: CacheSizes): void {
  const { recentTokens, blockSize, pageSize } = sizes;
  for (const name of ["sinkTokens", "heavyTokens"] as const) {
    if (sizes[name] === 0 || recentTokens > 0) continue;
    fail("option", name, sizes[name], "recentTokens beside it: without them all tokens stay");
  }
  if (pageSize > 0 && recentTokens > 0) {
    fail(
      "unsupported",
      "pageSize",
      pageSize,
      "no recentTokens, which bound what is read by themselves",
    );
  }
  if (pageSize > 0 && blockSize % pageSize !== 0) {
    fail("range", "blockSize", blockSize, `a multiple of pageSize = ${pageSize}`);
  }
}

export function readCacheDType(value: unknown): number {
  const known = Object.keys(CACHE_DTYPES);
  if (value === undefined) return CACHE_DTYPES.float32;
  if (typeof value !== "string" || !known.includes(value)) {
    fail("dtype", "dtype", value, `one of ${known.join(", ")}`);
  }
  return CACHE_DTYPES[value as CacheDType];
}
