import type { Window } from "./attention.js";
import { fail } from "./errors.js";
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

/** 2^(-8 i / n) for i = 1..n, n a power of two. */
const powerSlopes = (n: number): number[] =>
  Array.from({ length: n }, (_, i) => 2 ** ((-8 * (i + 1)) / n));

/**
 * Slopes of the ALiBi paper's code for any number of heads: for a power of two 2^(-8 i / n), else those
 * of the next lower power followed by every other one of the doubled set.
 * Source: Press et al. 2021, arXiv:2108.12409.
 */
export function alibiSlopes(numHeads: number): ReturnType<Float32ArrayConstructor["of"]> {
  const count = checkCount("alibiSlopes", numHeads, 2 ** 20);
  const power = 2 ** Math.floor(Math.log2(count));
  const others = powerSlopes(2 * power).filter((_, i) => i % 2 === 0);
  const slopes = [...powerSlopes(power), ...others.slice(0, count - power)];
  return Float32Array.from(slopes);
}
