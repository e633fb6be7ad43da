// A small scorer of a few dimensions rates every key; attention runs over the best.
import type { Heed } from "heed";
import { floats, make } from "../../lib/call.js";
import { hashText, normalSource } from "../../lib/random.js";
import { type Choosing, INPUTS, products } from "../block_mixture/selected.js";
import { DIM, K, Q, TOKENS } from "../block_mixture/text.js";

export const HEADS = 2;
const RATINGS = 0.5;

/** A drawn projection [DIM, dim], where a trained indexer has learned ones. */
function projection(dim: number): Float32Array {
  const normal = normalSource(hashText("indexer 0"));
  const all = Float32Array.from({ length: DIM * DIM }, normal);
  return Float32Array.from({ length: DIM * dim }, (_, at) => {
    const [row, column] = [Math.floor(at / dim), at % dim];
    return (all[row * DIM + column] as number) / Math.sqrt(dim);
  });
}

function projected(rows: Float32Array, matrix: Float32Array, dim: number): Float32Array {
  return Float32Array.from({ length: TOKENS * dim }, (_, at) => {
    const [token, column] = [Math.floor(at / dim), at % dim];
    let sum = 0;
    for (let d = 0; d < DIM; d++) {
      sum += (rows[token * DIM + d] as number) * (matrix[d * dim + column] as number);
    }
    return sum;
  });
}

/** Heads share the keys, as in the paper; here they share the projection of the queries too. */
export function indexer(dim: number) {
  const shared = projection(dim);
  const k = projected(K.data as Float32Array, shared, dim);
  const own = projected(Q.data as Float32Array, shared, dim);
  // The second head looks at the first half of the dimensions alone.
  const half = own.map((value, at) => (at % dim < dim / 2 ? value : 0));
  return {
    q: Float32Array.from([...own, ...half]),
    k,
    weights: new Float32Array(HEADS * TOKENS).fill(RATINGS),
  };
}

export function indexed(dim: number): Choosing {
  const { q, k, weights } = indexer(dim);
  const inputs = {
    ...INPUTS,
    indexQ: floats(q, [1, HEADS, TOKENS, dim]),
    indexK: floats(k, [1, TOKENS, dim]),
    indexWeights: floats(weights, [1, HEADS, TOKENS]),
  };
  return {
    budgets: [1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64],
    call: (heed: Heed, topK: number) => {
      const params = { topK, causal: true, returnWeights: true };
      return make(heed, { id: "indexed", inputs, params });
    },
    groups: (heed, _, query) => {
      const both = products(heed, q, Float32Array.from([...k, ...k]), { heads: HEADS, dim });
      const at = (head: number, key: number) =>
        both[(head * TOKENS + query) * TOKENS + key] as number;
      return Array.from({ length: query + 1 }, (_, key) => ({
        from: key,
        to: key + 1,
        score: RATINGS * (Math.max(0, at(0, key)) + Math.max(0, at(1, key))),
      }));
    },
  };
}
