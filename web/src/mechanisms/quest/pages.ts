// Pages of keys, judged by the most that any of their keys could score.
import type { Heed } from "heed";
import { make } from "../../lib/call.js";
import { blocksUpTo, type Choosing, INPUTS, keyRow, products } from "../block_mixture/selected.js";
import { DIM, K, Q, TOKENS } from "../block_mixture/text.js";

/** Largest, then smallest number of every channel: [pages, 2 DIM]. */
function boundKeys(size: number): Float32Array {
  const pages = blocksUpTo(TOKENS - 1, size);
  return Float32Array.from({ length: pages.length * 2 * DIM }, (_, at) => {
    const { from, to } = pages[Math.floor(at / (2 * DIM))] as { from: number; to: number };
    const d = at % (2 * DIM);
    const all = Array.from({ length: to - from }, (_, n) => keyRow(from + n)[d % DIM] as number);
    return d < DIM ? Math.max(...all) : Math.min(...all);
  });
}

/** What meets the largest numbers, then what meets the smallest: [TOKENS, 2 DIM]. */
const signedQueries = (() => {
  const q = Q.data as Float32Array;
  return Float32Array.from({ length: TOKENS * 2 * DIM }, (_, at) => {
    const [token, d] = [Math.floor(at / (2 * DIM)), at % (2 * DIM)];
    const value = q[token * DIM + (d % DIM)] as number;
    return d < DIM ? Math.max(0, value) : Math.min(0, value);
  });
})();

export function quest(pageSize: number): Choosing {
  const count = Math.ceil(TOKENS / pageSize);
  return {
    budgets: Array.from({ length: count }, (_, n) => n + 1),
    call: (heed: Heed, pages: number) =>
      make(heed, {
        id: "quest",
        inputs: INPUTS,
        params: { pageSize, topPages: pages, returnWeights: true },
      }),
    groups: (heed, _, query) => {
      const bounds = products(heed, signedQueries, boundKeys(pageSize), { dim: 2 * DIM });
      const scores = products(heed, Q.data as Float32Array, K.data as Float32Array);
      const own = scores.subarray(query * TOKENS, (query + 1) * TOKENS);
      return blocksUpTo(query, pageSize).map(({ from, to }, n) => ({
        from,
        to,
        score: bounds[query * count + n] as number,
        actual: Math.max(...own.subarray(from, to)),
      }));
    },
  };
}
