import { type Heed, load } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { expectClose, expectError, randomData } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

/** kSoftmaxMaxError and kNormMaxError of cpp/include/heed/rows.h. */
const SOFTMAX_ERROR = 1e-6;
const NORM_ERROR = 3e-7;

/** Softmax of one row in float64, among the entries that count. */
function softmaxOf(row: number[], counts: (n: number) => boolean = () => true): number[] {
  const kept = row.filter((_, n) => counts(n));
  const most = Math.max(...kept);
  const sum = kept.reduce((total, x) => total + Math.exp(x - most), 0);
  return row.map((x, n) => (counts(n) ? Math.exp(x - most) / sum : 0));
}

describe("heed.softmax and heed.logSoftmax", () => {
  it("agree with plain loops along every axis and rank", () => {
    for (const shape of [[7], [3, 70], [2, 5, 9], [2, 3, 4, 5]]) {
      const x = randomData(shape, shape.length);
      for (let axis = -shape.length; axis < shape.length; axis++) {
        const at = (axis + shape.length) % shape.length;
        const inner = shape.slice(at + 1).reduce((a, b) => a * b, 1);
        const extent = shape[at] ?? 1;
        const wanted = new Array<number>(x.data.length).fill(0);
        for (let start = 0; start < x.data.length; start++) {
          if (Math.floor(start / inner) % extent !== 0) continue;
          const places = Array.from({ length: extent }, (_, n) => start + n * inner);
          const row = softmaxOf(places.map((place) => x.data[place] as number));
          for (const [n, place] of places.entries()) wanted[place] = row[n] as number;
        }
        const weights = heed.softmax(x, { axis });
        expect(weights.shape).toEqual(shape);
        expectClose(`softmax ${shape} ${axis}`, weights.data, wanted, SOFTMAX_ERROR);
        const logs = heed.logSoftmax(x, { axis });
        expectClose(`log ${shape} ${axis}`, logs.data, wanted.map(Math.log), 10 * SOFTMAX_ERROR);
      }
    }
  });

  it("take the last axis by default, and large numbers", () => {
    const x = [[10000, 10001, -Infinity]];
    const [a, b] = softmaxOf([0, 1]) as [number, number];
    expectClose("softmax", heed.softmax(x).data, [a, b, 0], SOFTMAX_ERROR);
    expect(heed.logSoftmax(x).data[2]).toBe(-Infinity);
  });

  it("refuse what is no axis", () => {
    expectError("range", ["axis", "2", "-2 to 1"], () => heed.softmax([[1]], { axis: 2 }));
    expectError("option", ["axis", "whole number"], () =>
      heed.logSoftmax([[1]], { axis: "1" as never }),
    );
    expectError("option", ["unknown name `dim`"], () => heed.softmax([[1]], { dim: 0 } as never));
  });
});

describe("heed.maskedSoftmax", () => {
  const x = randomData([2, 2, 4], 9);
  const row = (n: number): number[] => Array.from(x.data.slice(4 * n, 4 * n + 4));
  const rows = (lengths: number[], hidden: number[] = []): number[] =>
    lengths.flatMap((length, n) =>
      softmaxOf(row(n), (entry) => entry < length && !hidden.includes(entry)),
    );

  it("takes lengths per batch entry and per row", () => {
    const each = heed.maskedSoftmax(x, { lengths: [2, 3] });
    expect(each.shape).toEqual([2, 2, 4]);
    expectClose("[batch]", each.data, rows([2, 2, 3, 3]), SOFTMAX_ERROR);
    const per = heed.maskedSoftmax(x, {
      lengths: [
        [1, 3],
        [2, 4],
      ],
    });
    expectClose("[batch, rows]", per.data, rows([1, 3, 2, 4]), SOFTMAX_ERROR);
    expect(Array.from(heed.maskedSoftmax(x, { lengths: [0, 0] }).data)).toEqual(
      new Array(16).fill(0),
    );
  });

  it("takes a mask that broadcasts, and never looks behind it", () => {
    const keep = [true, false, true, true];
    const wanted = rows([4, 4, 2, 2], [1]);
    const poisoned = { data: Float32Array.from(x.data), shape: x.shape };
    for (let n = 1; n < 16; n += 4) poisoned.data[n] = NaN;
    for (const tensor of [x, poisoned]) {
      const { data } = heed.maskedSoftmax(tensor, { lengths: [4, 2], keep });
      expectClose("keep", data, wanted, SOFTMAX_ERROR);
    }
    const everywhere = { data: new Uint8Array(16).fill(1), shape: [2, 2, 4] };
    expectClose(
      "no mask",
      heed.maskedSoftmax(x, { keep: everywhere }).data,
      rows([4, 4, 4, 4]),
      SOFTMAX_ERROR,
    );
  });

  it("has one row a batch entry at rank 2, and heads at rank 4", () => {
    const flat = heed.maskedSoftmax([row(0), row(1)], { lengths: [1, 3] });
    expectClose("rank 2", flat.data, rows([1, 3]), SOFTMAX_ERROR);
    const deep = heed.maskedSoftmax({ data: x.data, shape: [1, 2, 2, 4] }, { lengths: [[1, 3]] });
    expectClose("rank 4", deep.data, rows([1, 3, 1, 3]), SOFTMAX_ERROR);
  });

  it("refuses lengths and masks that do not fit", () => {
    expectError("shape", ["lengths.shape", "[batch] = [2]"], () =>
      heed.maskedSoftmax(x, { lengths: [1, 2, 3] }),
    );
    expectError("range", ["lengths[1]", "5", "0 to the length of a row = 4"], () =>
      heed.maskedSoftmax(x, { lengths: [1, 5] }),
    );
    expectError("shape", ["keep", "[3]", "[2, 2, 4]"], () =>
      heed.maskedSoftmax(x, { keep: [true, true, true] }),
    );
  });
});

describe("heed.layerNorm and heed.rmsNorm", () => {
  const x = randomData([2, 3, 5], 4);
  const weight = randomData([3, 5], 5);
  const bias = randomData([3, 5], 6);

  const normed = (entry: number, centered: boolean): number[] => {
    const values = Array.from(x.data.slice(15 * entry, 15 * entry + 15));
    const mean = centered ? values.reduce((a, b) => a + b, 0) / 15 : 0;
    const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 15;
    return values.map(
      (value, n) => ((value - mean) / Math.sqrt(squares + 0.1)) * (weight.data[n] as number),
    );
  };

  it("agree with plain loops over several axes", () => {
    const layer = heed.layerNorm(x, { weight, bias, axis: 1, epsilon: 0.1 });
    const wanted = [0, 1].flatMap((entry) =>
      normed(entry, true).map((value, n) => value + (bias.data[n] as number)),
    );
    expect(layer.shape).toEqual([2, 3, 5]);
    expectClose("layerNorm", layer.data, wanted, 10 * NORM_ERROR);
    const rms = heed.rmsNorm(x, { weight, axis: -2, epsilon: 0.1 });
    expectClose("rmsNorm", rms.data, [...normed(0, false), ...normed(1, false)], 10 * NORM_ERROR);
  });

  it("return statistics when asked", () => {
    const { output, mean, inverseDeviation } = heed.layerNorm([[1, 3]], {
      returnStatistics: true,
      epsilon: 3,
    });
    expect(Array.from(output.data)).toEqual([-0.5, 0.5]);
    expect(mean.shape).toEqual([1, 1]);
    expect([mean.data[0], inverseDeviation.data[0]]).toEqual([2, 0.5]);
  });

  it("give a Tensor when given one", () => {
    const resident = heed.tensor(new Float32Array([3, 4]), [1, 2]);
    const y = heed.rmsNorm(resident, { epsilon: 1e-12 });
    expectClose("rmsNorm", y.data, [3 / Math.sqrt(12.5), 4 / Math.sqrt(12.5)], NORM_ERROR);
    y.dispose();
    resident.dispose();
  });

  it("refuse factors that do not fit and impossible epsilons", () => {
    expectError("shape", ["weight.shape", "[3, 5]"], () =>
      heed.layerNorm(x, { weight: [1, 2, 3, 4, 5], axis: 1 }),
    );
    expectError("range", ["epsilon", "0"], () => heed.rmsNorm(x, { epsilon: 0 }));
    expectError("option", ["unknown name `bias`"], () => heed.rmsNorm(x, { bias } as never));
  });
});
