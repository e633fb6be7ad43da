// What the model's page makes of tokens and weights.
import { expect, test } from "vitest";
import type { LayerHeads } from "../../web/src/model/model_types.js";
import { meanOfLayers, rollout, shownToken } from "../../web/src/model_page/attention.js";

test("tokens are written so that each is seen", () => {
  const plain = (text: string) => shownToken({ text, special: false }, 3);
  expect([" the", "\n\t", "a b"].map(plain)).toEqual(["·the", "⏎⇥", "a b"]);
  // A written token whose character is not complete, or the end of the text.
  expect(plain("")).toBe("…");
});

test("only the mark at the beginning is the start", () => {
  const mark = { text: "<|endoftext|>", special: true };
  expect(shownToken(mark, 0)).toBe("(start)");
  expect(shownToken(mark, 4)).toBe("<|endoftext|>");
  expect(shownToken(mark)).toBe("<|endoftext|>");
  expect(shownToken({ text: "In", special: false }, 0)).toBe("In");
});

const LEN = 5;
const HEADS = 3;

/** Causal rows that sum to 1, of each head of two layers, and what the worker adds to them. */
const layers = [0, 1].map((layer): LayerHeads => {
  const weights = new Float32Array(HEADS * LEN * LEN);
  const mean = new Float32Array(LEN * LEN);
  for (let head = 0; head < HEADS; head++) {
    for (let query = 0; query < LEN; query++) {
      const row = Array.from({ length: query + 1 }, (_, key) => 1 + ((key * 7 + head + layer) % 5));
      const sum = row.reduce((a, b) => a + b);
      row.forEach((weight, key) => {
        weights[(head * LEN + query) * LEN + key] = weight / sum;
        mean[query * LEN + key] = (mean[query * LEN + key] ?? 0) + weight / sum / HEADS;
      });
    }
  }
  return { layer, weights, mean };
});

const matrixOf = (values: ArrayLike<number>) =>
  Array.from({ length: LEN }, (_, row) => Array.from(values).slice(row * LEN, (row + 1) * LEN));

test("rollout is a row of the product of half the identity and half the mean of the heads", () => {
  const halves = layers.map(({ mean }) =>
    matrixOf(mean).map((row, at) => row.map((weight, key) => (weight + (key === at ? 1 : 0)) / 2)),
  );
  const [first, second] = halves as [number[][], number[][]];
  for (let query = 0; query < LEN; query++) {
    const truth = Array.from({ length: LEN }, (_, key) =>
      (second[query] as number[]).reduce(
        (sum, share, token) => sum + share * (first[token] as number[])[key]!,
        0,
      ),
    );
    const found = [...rollout({ len: LEN, heads: layers }, query)];
    found.forEach((share, key) => {
      expect(share).toBeCloseTo(truth[key] as number, 6);
    });
    expect(found.reduce((a, b) => a + b)).toBeCloseTo(1, 6);
  }
});

test("a rollout reads each mean weight once at most, however many heads a layer has", () => {
  const len = 1024;
  let reads = 0;
  const mean = new Proxy(new Float32Array(0), {
    get: (_, key) => {
      if (typeof key === "string") reads++;
      return 1 / len;
    },
  });
  const layer: LayerHeads = { layer: 0, weights: new Float32Array(0), mean };
  rollout({ len, heads: Array.from({ length: 2 }, () => layer) }, len - 1);
  expect(reads).toBeLessThanOrEqual(2 * ((len * (len + 1)) / 2));
});

test("the mean of all heads of the layers that are there", () => {
  const rows = layers.flatMap(({ weights }) =>
    [0, 1, 2].map((head) => matrixOf(weights.subarray(head * LEN * LEN))[3] as number[]),
  );
  meanOfLayers(layers, 3, LEN).forEach((share, key) => {
    const sum = rows.reduce((total, row) => total + (row[key] as number), 0);
    expect(share).toBeCloseTo(sum / rows.length, 6);
  });
});
