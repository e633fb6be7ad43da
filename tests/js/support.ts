import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { HeedError, type HeedErrorCode } from "heed";
import { expect } from "vitest";

export const root: string = fileURLToPath(new URL("../..", import.meta.url));

/** The accuracy that cpp/include/heed/attention.h promises: one constant for docs and all tests. */
export const MAX_ERROR: number = readConstant("attention.h", "kAttentionMaxError");
/** That of cpp/include/heed/recurrent.h, relative to the largest value. */
export const RECURRENT_MAX_ERROR: number = readConstant("recurrent.h", "kRecurrentMaxError");

function readConstant(file: string, name: string): number {
  const header = readFileSync(`${root}cpp/include/heed/${file}`, "utf8");
  const match = new RegExp(`${name} = ([0-9.e-]+);`).exec(header);
  if (match === null) throw new Error(`${file} has no ${name}`);
  return Number(match[1]);
}

/** Numbers in [-1, 1) that are the same in every run. */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 15), z | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 31 - 1;
  };
}

export interface Data {
  data: Float32Array;
  shape: number[];
}

export const size = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

export function randomData(shape: number[], seed: number): Data {
  const next = random(seed);
  return { data: Float32Array.from({ length: size(shape) }, next), shape };
}

export const largest = (data: ArrayLike<number>): number =>
  Array.from(data).reduce(
    (most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most),
    0,
  );

/** Expects every element within `bound`; infinities and NaN must be the same on both sides. */
export function expectClose(
  name: string,
  got: ArrayLike<number>,
  wanted: ArrayLike<number>,
  bound: number,
): void {
  expect(got.length, `${name}: number of elements`).toBe(wanted.length);
  for (let i = 0; i < wanted.length; i++) {
    const [a, b] = [got[i] as number, wanted[i] as number];
    const same = Object.is(a, b) || Math.abs(a - b) <= bound;
    if (!same) expect.fail(`${name}[${i}]: got ${a}, wanted ${b} within ${bound}`);
  }
}

/** Runs `work`, which must throw a HeedError of this code whose message contains all the words. */
export function expectError(code: HeedErrorCode, words: string[], work: () => unknown): void {
  let error: unknown;
  try {
    work();
  } catch (caught) {
    error = caught;
  }
  checkError(error, code, words);
}

export async function expectRejection(
  code: HeedErrorCode,
  words: string[],
  work: () => Promise<unknown>,
): Promise<void> {
  let error: unknown;
  try {
    await work();
  } catch (caught) {
    error = caught;
  }
  checkError(error, code, words);
}

function checkError(error: unknown, code: HeedErrorCode, words: string[]): void {
  expect(error, "it should have thrown").toBeInstanceOf(HeedError);
  const { message } = error as HeedError;
  expect((error as HeedError).code, message).toBe(code);
  for (const word of words) expect(message).toContain(word);
}
