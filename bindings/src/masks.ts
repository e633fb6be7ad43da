import type { Window } from "./attention.js";
import { fail, HeedError } from "./errors.js";
import { asRecord, checkNames } from "./option_names.js";
import { checkBytes, checkExtent } from "./shape.js";
import { elements, readSource, type TensorArgument } from "./source.js";
import { type PlainTensor, plainTensor } from "./tensor.js";

function checkCount(argument: string, n: unknown, most: number): number {
  if (typeof n !== "number" || !Number.isSafeInteger(n) || n < 1 || n > most) {
    fail("range", argument, n, `a whole number from 1 to ${most}`);
  }
  return n;
}

/** The window of the last n keys, the query's own included: `{ left: n - 1, right: 0 }`. */
export function lastN(n: number): Window {
  return { left: checkCount("lastN", n, Number.MAX_SAFE_INTEGER) - 1, right: 0 };
}

/** Turns a mask where true means hidden into a `keep`, where true means may attend. */
export function keepFromDropMask(mask: TensorArgument): PlainTensor<"uint8"> {
  const source = readSource("mask", mask, { role: "keep" });
  const hidden = elements(source);
  const keep = new Uint8Array(hidden.length);
  for (let i = 0; i < keep.length; i++) keep[i] = hidden[i] === 0 ? 1 : 0;
  return plainTensor(keep, Object.freeze([...source.shape]), "uint8");
}

const LENGTHS = { role: "lengths", vector: true } as const;

/** Reads a vector of whole numbers. */
function readIntegers(name: string, value: unknown): ArrayLike<number> {
  const source = readSource(name, value, LENGTHS);
  if (source.shape.length !== 1) {
    fail("shape", `${name}.shape`, [...source.shape], "one extent: a list of whole numbers");
  }
  return elements(source);
}

/** A keep of zeros and its two extents. */
function nothingKept(shape: unknown): { keep: Uint8Array; qLen: number; kvLen: number } {
  if (!Array.isArray(shape) || shape.length !== 2) fail("shape", "shape", shape, "[qLen, kvLen]");
  const qLen = checkExtent("shape[0]", shape[0]);
  const kvLen = checkExtent("shape[1]", shape[1]);
  checkBytes("keep", [qLen, kvLen], "uint8");
  return { keep: new Uint8Array(qLen * kvLen), qLen, kvLen };
}

function checkIndex(argument: string, index: number, count: number): void {
  if (index < 0 || index >= count) {
    fail("range", argument, index, count === 0 ? "none: the extent is 0" : `0 to ${count - 1}`);
  }
}

/**
 * A `keep` [qLen, kvLen] from a sparse matrix in COO: query rows[n] sees key cols[n]; any order,
 * repetitions are legal. Where the lists are long and the matrix thin, `keepPairs` takes the same
 * pairs without the matrix.
 */
export function keepFromCoo(
  rows: TensorArgument,
  cols: TensorArgument,
  shape: readonly [qLen: number, kvLen: number],
): PlainTensor<"uint8"> {
  const { keep, qLen, kvLen } = nothingKept(shape);
  const [from, to] = [readIntegers("rows", rows), readIntegers("cols", cols)];
  if (from.length !== to.length) {
    throw new HeedError(
      "shape",
      `cols: got ${to.length} numbers, expected ${from.length} as in rows`,
    );
  }
  for (let n = 0; n < from.length; n++) {
    const [query, key] = [from[n] as number, to[n] as number];
    checkIndex(`rows[${n}]`, query, qLen);
    checkIndex(`cols[${n}]`, key, kvLen);
    keep[query * kvLen + key] = 1;
  }
  return plainTensor(keep, Object.freeze([qLen, kvLen]), "uint8");
}

/**
 * A `keep` [qLen, kvLen] from a sparse matrix in CSR: query i sees the keys
 * indices[indptr[i]] ... indices[indptr[i + 1] - 1]. `blockIndptr` and `blockIndices` with
 * `blockSize: 1` take the same arrays without the matrix.
 */
export function keepFromCsr(
  indptr: TensorArgument,
  indices: TensorArgument,
  shape: readonly [qLen: number, kvLen: number],
): PlainTensor<"uint8"> {
  const { keep, qLen, kvLen } = nothingKept(shape);
  const [starts, keys] = [readIntegers("indptr", indptr), readIntegers("indices", indices)];
  if (starts.length !== qLen + 1) {
    throw new HeedError(
      "shape",
      `indptr: got ${starts.length} numbers, expected qLen + 1 = ${qLen + 1}`,
    );
  }
  if (starts[0] !== 0) fail("range", "indptr[0]", starts[0], "0");
  for (let query = 0; query < qLen; query++) {
    const [begin, end] = [starts[query] as number, starts[query + 1] as number];
    if (end < begin || end > keys.length) {
      const expectation = `${begin} to ${keys.length}: no less than before, within indices`;
      fail("range", `indptr[${query + 1}]`, end, expectation);
    }
    for (let n = begin; n < end; n++) {
      checkIndex(`indices[${n}]`, keys[n] as number, kvLen);
      keep[query * kvLen + (keys[n] as number)] = 1;
    }
  }
  return plainTensor(keep, Object.freeze([qLen, kvLen]), "uint8");
}

/**
 * Document ids of `len` tokens, for `queryDocuments` and `keyDocuments`, from the starts and the end
 * of documents packed one after the other: [0, 3, 5] gives 0 0 0 1 1. Tokens beyond the end
 * are padding, -1. `len` defaults to the end.
 */
export function documentsFromCuSeqlens(
  cuSeqlens: TensorArgument,
  len?: number,
): PlainTensor<"int32"> {
  const starts = readIntegers("cuSeqlens", cuSeqlens);
  const count = checkExtent("len", len === undefined ? (starts[starts.length - 1] ?? 0) : len);
  checkBytes("documents", [count], "int32");
  const ids = new Int32Array(count).fill(-1);
  for (let n = 0; n < starts.length; n++) {
    const [begin, end] = [n === 0 ? 0 : (starts[n - 1] as number), starts[n] as number];
    if (n === 0 && end !== 0) fail("range", "cuSeqlens[0]", end, "0");
    if (end < begin || end > count) {
      const expectation = `${begin} to ${count}: no less than before, within len`;
      fail("range", `cuSeqlens[${n}]`, end, expectation);
    }
    ids.fill(n - 1, begin, end);
  }
  return plainTensor(ids, Object.freeze([count]), "int32");
}

/** 2^(-most i / n) for i = 1..n, n a power of two. */
const powerSlopes = (n: number, most: number): number[] =>
  Array.from({ length: n }, (_, i) => 2 ** ((-most * (i + 1)) / n));

/** Options of `alibiSlopes`. */
export interface AlibiOptions {
  /** The exponent of the smallest slope, positive. Default 8, the paper's. */
  readonly maxExponent?: number | undefined;
}

const ALIBI_NAMES: ReadonlySet<string> = new Set(["maxExponent"]);

/**
 * Slopes of the ALiBi paper's code for any number of heads: for a power of two 2^(-8 i / n), else those
 * of the next lower power followed by every other one of the doubled set.
 * Source: Press et al. 2021, arXiv:2108.12409.
 */
export function alibiSlopes(
  numHeads: number,
  options?: AlibiOptions,
): ReturnType<Float32ArrayConstructor["of"]> {
  const given = asRecord("options", options);
  checkNames("options", given, ALIBI_NAMES);
  const { maxExponent: most = 8 } = given;
  if (typeof most !== "number" || !Number.isFinite(most) || most <= 0) {
    fail("range", "maxExponent", most, "a positive finite number");
  }
  const count = checkCount("alibiSlopes", numHeads, 2 ** 20);
  const power = 2 ** Math.floor(Math.log2(count));
  const others = powerSlopes(2 * power, most).filter((_, i) => i % 2 === 0);
  const slopes = [...powerSlopes(power, most), ...others.slice(0, count - power)];
  return Float32Array.from(slopes);
}
