import { type Heed, load, type Normalize } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { expectClose, largest, MAX_ERROR, randomData } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

const NORMALIZERS: readonly Normalize[] = [
  "softmax1",
  "sigmoid",
  "relu",
  "relu_squared",
  "average",
  "sparsemax",
  "entmax15",
  "stick_breaking",
  "cope",
];

const inputs = {
  q: randomData([2, 4, 9, 16], 1),
  k: randomData([2, 2, 300, 16], 2),
  v: randomData([2, 2, 300, 8], 3),
};

/** One query whose scores are `scores`, and values whose output is the weights. */
function weightsOf(scores: readonly number[], options: object): number[] {
  const v = scores.map((_, j) => scores.map((_, i) => (i === j ? 1 : 0)));
  const k = scores.map((score) => [score]);
  const { output } = heed.attention([[1]], k, v, { scale: 1, ...options });
  return Array.from(output.data);
}

describe("normalize", () => {
  it.each(NORMALIZERS)("%s matches the float64 reference", async (normalize) => {
    const { q, k, v } = inputs;
    const copeTable = normalize === "cope" ? randomData([12, 16], 4) : undefined;
    const params = { normalize, causal: true, queryOffset: "end", returnWeights: true } as const;
    const got = heed.attention(q, k, v, { ...params, copeTable });
    const wanted = await heed.reference("attention", { ...inputs, copeTable }, params);
    // Sums of many weights: the bound grows with their number.
    const bound = 40 * MAX_ERROR;
    expectClose("output", got.output.data, wanted.output.data, bound * largest(v.data));
    expectClose("weights", got.weights.data, wanted.weights?.data ?? [], bound);
  });

  it("gives the numbers of the entmax package", () => {
    const scores = [-2, 0, 0.5];
    expectClose("weights", weightsOf(scores, { normalize: "sparsemax" }), [0, 0.25, 0.75], 1e-6);
    const entmax = weightsOf(scores, { normalize: "entmax15" });
    expectClose("weights", entmax, [0, 0.326, 0.674], 5e-5);
  });

  it("keeps the lower keys of equal scores", () => {
    expect(weightsOf([1, 3, 3, 2], { normalize: "hard" })).toEqual([0, 1, 0, 0]);
    expect(weightsOf([1, 1, 1, 1], { normalize: "top_k", topK: 2 })).toEqual([0.5, 0.5, 0, 0]);
  });

  it("has a row of its own for each", () => {
    const { output } = heed.run("top_k", inputs, { topK: 3 });
    const same = heed.attention(inputs.q, inputs.k, inputs.v, { normalize: "top_k", topK: 3 });
    expect(output.data).toEqual(same.output.data);
  });
});

describe("dropout", () => {
  it("drops the same weights for the same seed, as the reference does", async () => {
    const { q, k, v } = inputs;
    for (const seed of [7, 2n ** 60n + 1n]) {
      const params = { dropout: { p: 0.4, seed }, returnWeights: true } as const;
      const got = heed.attention(q, k, v, params);
      const again = heed.attention(q, k, v, params);
      expect(got.output.data).toEqual(again.output.data);
      const wanted = await heed.reference("scaled_dot_product", inputs, params);
      const bound = (MAX_ERROR / 0.6) * largest(v.data);
      expectClose("output", got.output.data, wanted.output.data, bound);
      const plain = heed.attention(q, k, v, { returnWeights: true });
      expect(got.weights.data).toEqual(plain.weights.data);
    }
  });
});

describe("flash", () => {
  it("shows what the loop carries from tile to tile", async () => {
    const params = { returnTiles: true, tilesOfQuery: 4 };
    const got = heed.run("flash", inputs, params);
    const wanted = await heed.reference("flash", inputs, params);
    expect(got.runningMax?.shape).toEqual([2, 4, 1, 2]);
    for (const name of ["runningMax", "runningSum", "rescale"] as const) {
      expectClose(name, got[name]?.data ?? [], wanted[name]?.data ?? [], 1e-3);
    }
  });
});
