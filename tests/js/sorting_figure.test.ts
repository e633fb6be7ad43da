// What the page of Sinkhorn attention computes, against plain float64 loops written here.
import { type Heed, load } from "heed";
import { beforeAll, expect, test } from "vitest";
import { TOKENS } from "../../web/src/mechanisms/block_mixture/text.js";
import {
  BLOCKS,
  broughtTo,
  imbalance,
  logitsOf,
  SIZE,
  sorted,
} from "../../web/src/mechanisms/sinkhorn/sorting.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load();
});

const upTo = (count: number) => Array.from({ length: count }, (_, at) => at);

/** Rows, then columns, are divided by their sums, so many times. */
function balanced(logits: Float32Array, rounds: number, temperature: number): number[][] {
  let shares = upTo(BLOCKS).map((n) =>
    upTo(BLOCKS).map((m) => Math.exp((logits[n * BLOCKS + m] as number) / temperature)),
  );
  for (let round = 0; round < rounds; round++) {
    shares = shares.map((row) => {
      const sum = row.reduce((all, share) => all + share, 0);
      return row.map((share) => share / sum);
    });
    const sums = upTo(BLOCKS).map((m) => shares.reduce((all, row) => all + (row[m] as number), 0));
    shares = shares.map((row) => row.map((share, m) => share / (sums[m] as number)));
  }
  return shares;
}

test("SharesAreTheScoresBalancedByRowsAndColumns", () => {
  const logits = logitsOf(heed);
  for (const [rounds, temperature] of [
    [1, 0.75],
    [8, 0.75],
    [5, 2],
  ] as const) {
    const { shares, weights } = sorted(heed, rounds, temperature);
    const wanted = balanced(logits, rounds, temperature);
    for (const [at, share] of wanted.flat().entries()) {
      expect(Math.abs((shares[at] as number) - share), `share ${at}`).toBeLessThan(1e-5);
    }
    const first = wanted[0] as number[];
    const most = Math.max(...first);
    expect(broughtTo(shares, 0).block).toBe(first.indexOf(most));
    expect(broughtTo(shares, 0).share).toBeCloseTo(most, 4);
    // What is brought is shares of blocks: a query's weights on their tokens sum to no more than they do.
    for (const query of [0, 20, TOKENS - 1]) {
      const own = Math.floor(query / SIZE);
      const brought = upTo(TOKENS)
        .filter((key) => Math.floor(key / SIZE) !== own)
        .reduce((sum, key) => sum + (weights[query * TOKENS + key] as number), 0);
      const most = (wanted[own] as number[]).reduce((sum, share) => sum + share, 0);
      expect(brought).toBeGreaterThan(0);
      expect(brought).toBeLessThanOrEqual(most + 1e-5);
    }
  }
});

test("MoreRoundsBalanceMore", () => {
  const off = [1, 3, 10].map((rounds) => imbalance(sorted(heed, rounds, 0.75).shares, "rows"));
  expect(off).toEqual([...off].sort((a, b) => b - a));
  expect(imbalance(sorted(heed, 10, 0.75).shares, "columns")).toBeLessThan(1e-5);
});
