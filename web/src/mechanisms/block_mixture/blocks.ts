// Blocks of keys, judged by the product of the query with their mean key.
import type { Heed } from "heed";
import { make } from "../../lib/call.js";
import { blocksUpTo, type Choosing, INPUTS, keyRow, products } from "./selected.js";
import { DIM, Q, TOKENS } from "./text.js";

/** [blocks, DIM] */
function meanKeys(size: number): Float32Array {
  const blocks = blocksUpTo(TOKENS - 1, size);
  return Float32Array.from({ length: blocks.length * DIM }, (_, at) => {
    const { from, to } = blocks[Math.floor(at / DIM)] as { from: number; to: number };
    let sum = 0;
    for (let key = from; key < to; key++) sum += keyRow(key)[at % DIM] as number;
    return sum / (to - from);
  });
}

export function mixture(keyBlock: number): Choosing {
  const blocks = Math.ceil(TOKENS / keyBlock);
  return {
    budgets: Array.from({ length: blocks }, (_, n) => n + 1),
    call: (heed: Heed, topBlocks: number) => {
      const params = { keyBlock, topBlocks, causal: true, returnWeights: true };
      return make(heed, { id: "block_mixture", inputs: INPUTS, params });
    },
    groups: (heed, _, query) => {
      const scores = products(heed, Q.data as Float32Array, meanKeys(keyBlock));
      return blocksUpTo(query, keyBlock).map((block, n) => ({
        ...block,
        score: scores[query * blocks + n] as number,
      }));
    },
  };
}
