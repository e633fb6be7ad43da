import { type Heed, load } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { expectClose, expectError, randomData } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

describe("heed.linear", () => {
  it("gives hand-computed numbers and keeps the rank", () => {
    const x = [
      [1, 2, 3],
      [4, 5, 6],
    ];
    const weight = [
      [1, 0, -1],
      [2, 2, 2],
    ];
    const { shape, data } = heed.linear(x, weight, [10, 0.5]);
    expect(shape).toEqual([2, 2]);
    expect(Array.from(data)).toEqual([8, 12.5, 8, 30.5]);
    const deep = { data: randomData([2, 1, 3, 4], 1).data, shape: [2, 1, 3, 4] };
    expect(heed.linear(deep, randomData([5, 4], 2)).shape).toEqual([2, 1, 3, 5]);
  });

  it("agrees with plain loops", () => {
    const [x, weight, bias] = [
      randomData([7, 300], 1),
      randomData([33, 300], 2),
      randomData([33], 3),
    ];
    const wanted = Array.from({ length: 7 * 33 }, (_, n) => {
      const [i, o] = [Math.floor(n / 33), n % 33];
      let sum = bias.data[o] as number;
      for (let d = 0; d < 300; d++) {
        sum += (x.data[i * 300 + d] as number) * (weight.data[o * 300 + d] as number);
      }
      return sum;
    });
    expectClose("linear", heed.linear(x, weight, bias.data).data, wanted, 4e-6 * 100);
  });

  it("gives a Tensor when given one", () => {
    const x = heed.tensor(new Float32Array([1, 2]), [1, 2]);
    const y = heed.linear(x, [[3, 4]]);
    expect(Array.from(y.data)).toEqual([11]);
    y.dispose();
    x.dispose();
  });
});

describe("heed.bmm", () => {
  it("multiplies, transposes and broadcasts", () => {
    const a = [
      [1, 2],
      [3, 4],
    ];
    expect(heed.bmm(a, [[5], [6]]).toNested()).toEqual([[17], [39]]);
    expect(heed.bmm(a, [[5, 6]], { transposeB: true }).toNested()).toEqual([[17], [39]]);
    const many = heed.bmm([a, [[0, 1]].concat([[1, 0]])], a);
    expect(many.toNested()).toEqual([
      [
        [7, 10],
        [15, 22],
      ],
      [
        [3, 4],
        [1, 2],
      ],
    ]);
    const batch = heed.bmm(randomData([2, 1, 4, 5], 1), randomData([1, 3, 5, 6], 2));
    expect(batch.shape).toEqual([2, 3, 4, 6]);
  });
});

describe("products refuse", () => {
  it("what does not fit", () => {
    const x = randomData([2, 3], 1);
    expectError("shape", ["weight", "4", "x = 3"], () => heed.linear(x, randomData([2, 4], 2)));
    expectError("shape", ["weight", "rank 2"], () => heed.linear(x, randomData([1, 2, 3], 2)));
    expectError("shape", ["bias"], () => heed.linear(x, randomData([2, 3], 2), [1, 2, 3]));
    expectError("shape", ["x"], () => heed.linear([1, 2, 3], randomData([2, 3], 2)));
    expectError("shape", ["b"], () => heed.bmm(x, randomData([2, 3], 2)));
    expectError("shape", ["heads"], () =>
      heed.bmm(randomData([2, 1, 3], 1), randomData([3, 3, 1], 2)),
    );
    expectError("option", ["transposeB"], () => heed.bmm(x, x, { transposeB: 1 } as never));
    expectError("option", ["transpose"], () => heed.bmm(x, x, { transpose: true } as never));
  });

  it("and leak nothing", () => {
    const before = heed.memory();
    expectError("shape", ["weight"], () =>
      heed.linear(randomData([2, 3], 1), randomData([2, 4], 2)),
    );
    expect(heed.memory()).toEqual(before);
  });
});
