// Three ways to see the past: summaries of blocks, the blocks whose summaries fit best, the last tokens.
import type { Heed } from "heed";
import { floats, make } from "../../lib/call.js";
import { blocksUpTo, type Choosing, INPUTS, weightsOf } from "../block_mixture/selected.js";
import { TOKENS } from "../block_mixture/text.js";

export const BRANCHES = ["all", "compressed", "selected", "window"] as const;
export type Branch = (typeof BRANCHES)[number];
const BLOCK = 4;
export const LEAST_BLOCKS = 2;

const hasSummaries = (branch: Branch) => branch === "all" || branch === "compressed";
export const hasChosen = (branch: Branch) => branch === "all" || branch === "selected";
export const hasWindow = (branch: Branch) => branch === "all" || branch === "window";

/** One branch opened and the others shut, or all three alike. */
function gatesOf(branch: Branch) {
  const open = BRANCHES.indexOf(branch) - 1;
  const gate = (at: number) => (branch === "all" ? 1 / 3 : Number(at === open));
  return floats(
    Array.from({ length: TOKENS * 3 }, (_, at) => gate(at % 3)),
    [1, 1, TOKENS, 3],
  );
}

export function nativeSparse(branch: Branch, windowLen: number): Choosing {
  const call = (heed: Heed, topBlocks: number, shown: Branch) =>
    make(heed, {
      id: "native_sparse",
      inputs: { ...INPUTS, branchGates: gatesOf(shown) },
      params: {
        compressBlock: BLOCK,
        compressStride: BLOCK,
        keyBlock: BLOCK,
        firstBlocks: 1,
        localBlocks: 1,
        topBlocks,
        windowLen,
      },
    });
  return {
    budgets: hasChosen(branch) && !hasSummaries(branch) ? [2, 3, 4, 5, 6, 8, 10, 12, 16] : [],
    summarises: hasSummaries(branch),
    call: (heed, topBlocks) => call(heed, topBlocks, branch),
    /** A block's summary has the weight of its keys in the first branch. */
    groups: (heed, _, query) => {
      const summaries = weightsOf(call(heed, LEAST_BLOCKS, "compressed"));
      return blocksUpTo(query, BLOCK).map(({ from, to }) => {
        const row = summaries.subarray(query * TOKENS + from, query * TOKENS + to);
        return { from, to, score: row.reduce((sum, weight) => sum + weight, 0) };
      });
    },
  };
}
