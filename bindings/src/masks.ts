import type { Window } from "./attention.js";
import { fail } from "./errors.js";
import { asRecord, checkNames } from "./option_names.js";
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
  const most = given.maxExponent ?? 8;
  if (typeof most !== "number" || !Number.isFinite(most) || most <= 0) {
    fail("range", "maxExponent", most, "a positive finite number");
  }
  const count = checkCount("alibiSlopes", numHeads, 2 ** 20);
  const power = 2 ** Math.floor(Math.log2(count));
  const others = powerSlopes(2 * power, most).filter((_, i) => i % 2 === 0);
  const slopes = [...powerSlopes(power, most), ...others.slice(0, count - power)];
  return Float32Array.from(slopes);
}
