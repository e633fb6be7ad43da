// The first tokens and the last ones.
import type { Heed } from "heed";
import { make } from "../../lib/call.js";
import { type Choosing, INPUTS } from "../block_mixture/selected.js";

/** The budget is the window. */
export const streaming = (sinkTokens: number): Choosing => ({
  budgets: [1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64],
  call: (heed: Heed, recentTokens: number) => {
    const params = { recentTokens, sinkTokens, returnWeights: true };
    return make(heed, { id: "streaming", inputs: INPUTS, params });
  },
});
