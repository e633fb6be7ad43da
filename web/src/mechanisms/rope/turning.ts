// One query and one key, turned by their positions, and the product of every pair of positions.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import { hashText, normalSource } from "../../lib/random.js";

export const POSITIONS = 48;
export const DIM = 8;
export const PAIRS = DIM / 2;

const draw = (name: string): number[] => {
  const normal = normalSource(hashText(`rope ${name}`));
  return Array.from({ length: DIM }, normal);
};
export const QUERY = draw("query");
export const KEY = draw("key");

const repeated = (vector: readonly number[]) =>
  floats(Array.from({ length: POSITIONS }, () => vector).flat(), [1, 1, POSITIONS, DIM]);

export interface Turned {
  called: Called;
  /** The query at every position, [POSITIONS, DIM]; pair p is dimensions p and p + PAIRS. */
  queries: Float32Array;
  /** q at i times k at j, [POSITIONS, POSITIONS]. */
  products: Float32Array;
}

/** `offset` moves all positions. */
export function turned(heed: Heed, base: number, offset: number): Turned {
  const params = { pairing: "half", base, positionOffset: offset };
  const called = make(heed, { id: "rope", inputs: { x: repeated(QUERY) }, params });
  const queries = called.results.output?.data as Float32Array;
  const k = heed.run("rope", { x: repeated(KEY) }, params).output.data as Float32Array;
  const shape = [1, 1, POSITIONS, DIM];
  const inputs = { q: floats(queries, shape), k: floats(k, shape), v: floats(k, shape) };
  const products = heed.run("luong_dot", inputs, { returnScores: "raw" }).scores?.data;
  return { called, queries, products: products as Float32Array };
}

/** Positions after which a pair has turned once. */
export const wavelength = (base: number, pair: number): number =>
  2 * Math.PI * base ** ((2 * pair) / DIM);
