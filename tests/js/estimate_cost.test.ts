// heed.estimateCost says what a call would do, and agrees with what it then allocates.
import { type Heed, HeedError, load } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { randomData } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

const rows = (batch: number, heads: number, len: number, dim: number) =>
  randomData([batch, heads, len, dim], len + dim);

describe("estimateCost", () => {
  it("counts pairs, bytes and scratch of exact attention", () => {
    const q = rows(2, 4, 100, 16);
    const k = rows(2, 2, 100, 16);
    const v = rows(2, 2, 100, 8);
    const full = heed.estimateCost("scaled_dot_product", { q, k, v });
    expect(full.flops).toBe(2 * 4 * 100 * 100 * 2 * (16 + 8));
    expect(full.bytesRead).toBe(4 * (2 * 4 * 100 * 16 + 2 * 2 * 100 * (16 + 8)));
    expect(full.bytesWritten).toBe(4 * 2 * 4 * 100 * 8);
    expect(full.scratchBytes).toBeGreaterThan(0);
    const causal = heed.estimateCost("scaled_dot_product", { q, k, v }, { causal: true });
    expect(causal.flops).toBe(2 * 4 * ((100 * 101) / 2) * 2 * (16 + 8));
  });

  it("counts the keys that a list of blocks leaves", () => {
    const x = rows(1, 1, 128, 16);
    const blockKeep = { data: Uint8Array.of(1, 0, 1, 1), shape: [2, 2] };
    const { flops } = heed.estimateCost("block_sparse", { q: x, k: x, v: x, blockKeep });
    expect(flops).toBe(3 * 64 * 64 * 2 * 32);
  });

  it("weights are written and their scores computed again", () => {
    const x = rows(1, 1, 10, 4);
    const inputs = { q: x, k: x, v: x };
    const alone = heed.estimateCost("scaled_dot_product", inputs);
    const both = heed.estimateCost("scaled_dot_product", inputs, { returnWeights: true });
    expect(both.bytesWritten - alone.bytesWritten).toBe(4 * 10 * 10);
    expect((both.flops ?? 0) - (alone.flops ?? 0)).toBe(10 * 10 * 2 * 4);
  });

  it("counts sums as free", () => {
    const x = randomData([1, 6, 8], 3);
    const cost = heed.estimateCost("sinusoidal", { x });
    expect(cost.bytesRead).toBe(4 * 48);
    expect(cost.bytesWritten).toBe(4 * 48);
    expect(cost.flops).toBe(0);
    expect(cost.scratchBytes).toBeGreaterThan(0);
  });

  it("counts the projections of layers and the rows between them", () => {
    const rowsOf = (len: number) => randomData([2, len, 8], len);
    const [wQ, wK, wV] = [1, 2, 3].map((seed) => randomData([2, 4, 8], seed));
    const { flops, scratchBytes } = heed.estimateCost("multi_head", {
      query: rowsOf(10),
      key: rowsOf(20),
      value: rowsOf(20),
      wQ,
      wK,
      wV,
    });
    expect(flops).toBe(2 * 2 * 64 * (10 + 20 + 20) + 2 * 2 * 10 * 20 * 2 * (4 + 4));
    expect(scratchBytes).toBeGreaterThan(4 * 2 * 8 * (10 + 20 + 20));
  });

  it("counts every step of a retrieval", () => {
    const x = rows(1, 2, 30, 8);
    const { flops } = heed.estimateCost("hopfield", { q: x, k: x, v: x }, { steps: 1000 });
    expect(flops).toBe(1000 * 2 * 30 * 30 * 2 * (8 + 8));
  });

  it("keeps no memory, runs nothing, and takes tensors", () => {
    using q = heed.tensor(new Float32Array(64 * 8), [64, 8]);
    const before = heed.memory();
    const { flops } = heed.estimateCost("attention", { q, k: q, v: q }, { window: { left: 0 } });
    expect(flops).toBe(((64 * 65) / 2) * 2 * 16); // itself and what follows
    expect(heed.memory().bytes).toBe(before.bytes);
    expect(heed.memory().tensors).toBe(before.tensors);
  });

  it("refuses what run refuses, in the words of JavaScript", () => {
    const q = rows(1, 1, 3, 4);
    const k = rows(1, 1, 5, 4);
    const refusal = (params: Record<string, unknown>) => {
      try {
        heed.estimateCost("scaled_dot_product", { q, k, v: k }, params);
      } catch (error) {
        return error as HeedError;
      }
      return undefined;
    };
    expect(refusal({ causal: true })?.message).toMatch(/queryOffset/);
    expect(refusal({ causl: true })?.code).toBe("option");
    expect(() => heed.estimateCost("no_such_row", {})).toThrow(HeedError);
  });
});
