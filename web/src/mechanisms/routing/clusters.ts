// Clusters of directions: queries and keys meet where they are nearest to the same centroid.
import type { Heed } from "heed";
import { floats, make } from "../../lib/call.js";
import { hashText, normalSource } from "../../lib/random.js";
import { type Choosing, INPUTS, products } from "../block_mixture/selected.js";
import { DIM, K, PASSAGE_OF, Q, TOKENS } from "../block_mixture/text.js";

export const CLUSTERS = 3;

/** Sums of the keys of each topic, which point where the means of a trained model do, or any directions. */
export function centroidsOf(learned: boolean): Float32Array {
  const normal = normalSource(hashText("centroids"));
  const rows = Float32Array.from({ length: CLUSTERS * DIM }, () => (learned ? 0 : normal()));
  if (!learned) return rows;
  PASSAGE_OF.forEach(({ topic }, token) => {
    if (topic === null) return;
    for (let d = 0; d < DIM; d++) {
      const at = topic * DIM + d;
      rows[at] = (rows[at] as number) + (K.data[token * DIM + d] as number);
    }
  });
  return rows;
}

/** Of length 1: only directions count. */
function unit(rows: Float32Array): Float32Array {
  return rows.map((value, at) => {
    const first = Math.floor(at / DIM) * DIM;
    return value / Math.hypot(...rows.subarray(first, first + DIM));
  });
}

const best = (scores: readonly number[], count: number): number[] =>
  [...scores.keys()].sort((a, b) => (scores[b] as number) - (scores[a] as number)).slice(0, count);

/** The clusters that take a query among the `size` nearest to their centroid. */
export function clustersOf(heed: Heed, learned: boolean, size: number, query: number): number[] {
  const all = products(heed, unit(Q.data as Float32Array), centroidsOf(learned));
  return Array.from({ length: CLUSTERS }, (_, c) => c).filter((c) => {
    const scores = Array.from({ length: TOKENS }, (_, i) => all[i * CLUSTERS + c] as number);
    return best(scores, size).includes(query);
  });
}

export function routing(learned: boolean, shownSize: number): Choosing {
  const centroids = floats(centroidsOf(learned), [1, CLUSTERS, DIM]);
  return {
    budgets: [4, 8, 12, 16, 20, 24, 32, 40, 48, 64],
    call: (heed: Heed, clusterTokens: number) => {
      const params = { clusterTokens, causal: true, returnWeights: true };
      return make(heed, { id: "routing", inputs: { ...INPUTS, centroids }, params });
    },
    /** How near each key is to the nearest centroid of the query's clusters; of no cluster, nothing. */
    groups: (heed, _, query) => {
      const own = clustersOf(heed, learned, shownSize, query);
      if (own.length === 0) return [];
      const all = products(heed, centroidRows(learned), unit(K.data as Float32Array));
      const near = (key: number) => Math.max(...own.map((c) => all[c * TOKENS + key] as number));
      return Array.from({ length: query + 1 }, (_, key) => ({
        from: key,
        to: key + 1,
        score: near(key),
      }));
    },
  };
}

/** As many rows as there are tokens: the first ones are the centroids. */
function centroidRows(learned: boolean): Float32Array {
  const rows = new Float32Array(TOKENS * DIM);
  rows.set(unit(centroidsOf(learned)));
  return rows;
}
