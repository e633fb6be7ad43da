// What the page of Sinkhorn attention computes, against plain float64 loops written here.
import { type Heed, load } from "heed";
import { beforeAll, expect, test } from "vitest";
import { DIM, K, Q, TOKENS } from "../../web/src/mechanisms/block_mixture/text.js";
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

const row = (all: ArrayLike<number>, at: number): number[] =>
  upTo(DIM).map((d) => all[at * DIM + d] as number);
const dot = (a: readonly number[], b: readonly number[]) =>
  a.reduce((sum, value, d) => sum + value * (b[d] as number), 0);

/** Softmax of a query over its own block and the one that is brought, spread over what that is made of. */
function weightsOf(shares: readonly number[], query: number): number[] {
  const own = Math.floor(query / SIZE);
  const key = (block: number, slot: number) => row(K.data, block * SIZE + slot);
  const brought = upTo(SIZE).map((slot) =>
    upTo(DIM).map((d) =>
      shares.reduce((sum, share, block) => sum + share * (key(block, slot)[d] as number), 0),
    ),
  );
  const keys = [...upTo(SIZE).map((slot) => key(own, slot)), ...brought];
  const exps = keys.map((each) => Math.exp(dot(row(Q.data, query), each) / Math.sqrt(DIM)));
  const sum = exps.reduce((all, value) => all + value, 0);
  return upTo(TOKENS).map((token) => {
    const [block, slot] = [Math.floor(token / SIZE), token % SIZE];
    const direct = block === own ? (exps[slot] as number) : 0;
    return (direct + (shares[block] as number) * (exps[SIZE + slot] as number)) / sum;
  });
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
    for (const query of upTo(TOKENS)) {
      const truth = weightsOf(wanted[Math.floor(query / SIZE)] as number[], query);
      for (const [key, weight] of truth.entries()) {
        const found = weights[query * TOKENS + key] as number;
        expect(Math.abs(found - weight), `query ${query}, key ${key}`).toBeLessThan(1e-5);
      }
    }
  }
});

test("MoreRoundsBalanceMore", () => {
  const off = [1, 3, 10].map((rounds) => imbalance(sorted(heed, rounds, 0.75).shares, "rows"));
  expect(off).toEqual([...off].sort((a, b) => b - a));
  expect(imbalance(sorted(heed, 10, 0.75).shares, "columns")).toBeLessThan(1e-5);
});
