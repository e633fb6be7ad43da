// A code of positions: the rows that are added, and how alike they are. An embedding of 0 shows the code alone.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleParams, ExampleTensor } from "../../lib/example.js";

export const POSITIONS = 64;
export const DIM = 32;

export interface Coding {
  id: "sinusoidal" | "learned_position";
  params: ExampleParams;
  extra?: Readonly<Record<string, ExampleTensor>>;
  /** How many positions there are codes for; absent: all. */
  len?: number;
}

export interface Code {
  called: Called;
  /** How many positions have a code. */
  len: number;
  /** [len, DIM] */
  rows: Float32Array;
  /** Row i times row j over DIM / 2, [len, len]: 1 is what a sinusoidal row has with itself. */
  products: Float32Array;
}

const empty = (len: number): ExampleTensor =>
  floats(
    Array.from({ length: len * DIM }, () => 0),
    [1, len, DIM],
  );

export function code(heed: Heed, { id, params, extra, len = POSITIONS }: Coding): Code {
  const called = make(heed, { id, inputs: { x: empty(len), ...extra }, params });
  const rows = called.results.output?.data as Float32Array;
  const heads = floats(rows, [1, 1, len, DIM]);
  const scaled = { scale: 2 / DIM, returnScores: "raw" };
  const products = heed.run("scaled_dot_product", { q: heads, k: heads, v: heads }, scaled);
  return { called, len, rows, products: products.scores?.data as Float32Array };
}

/** What heed says when it is asked for all positions; null where it has them. */
export function refusal(heed: Heed, { id, params, extra }: Coding): string | null {
  try {
    heed.run(id, { x: empty(POSITIONS), ...extra }, params);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
