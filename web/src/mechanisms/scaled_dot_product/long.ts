// One head over thousands of tokens: its weights as a picture, rows at a time, from q, k and lse.
import type { Heed } from "heed";
import { hashText, normalSource } from "../../lib/random.js";

export const LENGTHS = [512, 1024, 2048, 4096] as const;
const DIM = 16;
const ROWS_AT_ONCE = 128;
const TOPICS = 6;

/** Tokens that wander between a few topics: blocks and returns show in the picture. */
function wander(length: number): Float32Array {
  const normal = normalSource(hashText("long"));
  const centres = Array.from({ length: TOPICS }, () => Float32Array.from({ length: DIM }, normal));
  const x = new Float32Array(length * DIM);
  let topic = 0;
  let left = 0;
  for (let t = 0; t < length; t++) {
    if (left-- <= 0) {
      topic = Math.floor(Math.abs(normal()) * 1e6) % TOPICS;
      left = Math.round(length / 48 + (Math.abs(normal()) * length) / 24);
    }
    for (let d = 0; d < DIM; d++) x[t * DIM + d] = (centres[topic]?.[d] as number) + 0.5 * normal();
  }
  return x;
}

export interface LongWeights {
  length: number;
  /** [length, length]; rows beyond `rowsDone` are still 0. */
  values: Float32Array;
  rowsDone: number;
  milliseconds: number;
}

/** Calls `show` after every strip of rows; stops when `stopped()` says so. */
export async function weighLong(
  heed: Heed,
  length: number,
  show: (state: LongWeights) => void,
  stopped: () => boolean,
): Promise<void> {
  const x = { data: wander(length), shape: [1, 1, length, DIM] };
  const q = heed.tensor(x.data, x.shape);
  try {
    const start = performance.now();
    const lse = heed.attention(q, q, q, { causal: true, returnLse: true }).lse;
    let spent = performance.now() - start;
    const values = new Float32Array(length * length);
    for (let row = 0; row < length; row += ROWS_AT_ONCE) {
      await new Promise((resolve) => setTimeout(resolve));
      if (stopped()) break;
      const begin = performance.now();
      const rows = [row, Math.min(length, row + ROWS_AT_ONCE)] as const;
      const { weights } = heed.weightsTile(q, q, lse, { causal: true, rows });
      spent += performance.now() - begin;
      values.set(weights.data as Float32Array, row * length);
      if ("dispose" in weights) weights.dispose();
      show({ length, values, rowsDone: rows[1], milliseconds: spent });
    }
    if ("dispose" in lse) lse.dispose();
  } finally {
    q.dispose();
  }
}
