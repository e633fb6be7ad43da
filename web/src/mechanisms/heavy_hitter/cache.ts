// A cache of fixed size: the newest tokens, and of the older ones those that received most weight so far.
import type { Heed } from "heed";
import { make } from "../../lib/call.js";
import { type Choosing, INPUTS } from "../block_mixture/selected.js";
import { TOKENS } from "../block_mixture/text.js";

/** The budget is the number of older tokens. */
export const heavyHitter = (recentTokens: number): Choosing => ({
  budgets: [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64],
  call: (heed: Heed, heavyTokens: number) => {
    const params = { recentTokens, heavyTokens, returnWeights: true };
    return make(heed, { id: "heavy_hitter", inputs: INPUTS, params });
  },
  /** What each token had received before the query came. */
  groups: (_, weights, query) =>
    Array.from({ length: query }, (_, key) => {
      let score = 0;
      for (let before = key; before < query; before++) {
        score += weights[before * TOKENS + key] as number;
      }
      return { from: key, to: key + 1, score };
    }),
});
