// Rows of weights as pages read them out: order, ranks, what is hidden, and how spread they are.
import { expect, it } from "vitest";
import { inspectRow, meanDistance, meanEntropy } from "../../web/src/lib/row.js";

it("lists the largest weights first, and nothing that is hidden", () => {
  const weights = [0.1, 0, 0.6, 0, 0.3];
  const all = inspectRow(weights, null, 8, null);
  expect(all.map(({ index, rank }) => [index, rank])).toEqual([
    [2, 1],
    [4, 2],
    [0, 3],
    [1, 4],
    [3, 4],
  ]);
  const seen = inspectRow(weights, null, 8, 3, (column) => weights[column] === 0);
  expect(seen.map(({ index }) => index)).toEqual([2, 4, 0]);
  const scored = inspectRow(weights, [1, -Infinity, 2, 0, -Infinity], 8, null);
  expect(scored.map(({ index }) => index)).toEqual([2, 0, 3]);
});

it("the bits of a row do not depend on what it sums to", () => {
  const even = new Float32Array(16).fill(1 / 16);
  expect(meanEntropy(even, 1, 16)).toBeCloseTo(4, 6);
  expect(
    meanEntropy(
      even.map((weight) => 100 * weight),
      1,
      16,
    ),
  ).toBeCloseTo(4, 6);
  expect(meanEntropy([1, 0, 0, 0, 0, 0, 0.5, 0.5], 2, 4)).toBeCloseTo(0.5, 6);
  expect(meanEntropy([0, 0, 0, 0], 1, 4)).toBe(0);
});

it("the distance of a head is that of its rows, in tokens, whatever they sum to", () => {
  const identity = [1, 0, 0, 0, 1, 0, 0, 0, 1];
  expect(meanDistance(identity, 3, 3)).toBe(0);
  // Each row looks at the first key: 0, 1 and 2 tokens back, the second with half the weight.
  expect(meanDistance([1, 0, 0, 0.5, 0, 0, 1, 0, 0], 3, 3)).toBeCloseTo(1, 12);
  // One query after three keys stands at the last of them.
  expect(meanDistance([0.5, 0, 0.5], 1, 3)).toBeCloseTo(1, 12);
  expect(meanDistance([0, 0, 0, 0], 2, 2)).toBe(0);
});
