import { type Heed, load } from "heed";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Data, expectClose, expectError, MAX_ERROR, randomData } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1, simd: "plain" });
});
afterAll(() => heed.dispose());

const rows = ({ data, shape }: Data, begin: number, end: number): Data => {
  const [, heads = 0, dim = 0] = shape;
  const part = data.subarray(begin * heads * dim, end * heads * dim);
  return { data: part, shape: [1, end - begin, heads, dim] };
};

describe("heed.attentionVarlen", () => {
  const cuQ = [0, 3, 3, 20, 24];
  const cuK = [0, 5, 9, 26, 40];
  const q = randomData([24, 4, 8], 1);
  const k = randomData([40, 2, 8], 2);
  const v = randomData([40, 2, 16], 3);

  it("is attention within each sequence", () => {
    const options = { causal: true, queryOffset: "end", softcap: 10 } as const;
    const all = heed.attentionVarlen(q, k, v, {
      ...options,
      cuSeqlensQ: Int32Array.from(cuQ),
      cuSeqlensK: cuK,
      returnLse: true,
    });
    expect(all.output.shape).toEqual([24, 4, 16]);
    expect(all.lse.shape).toEqual([4, 24]);
    for (let s = 0; s < 4; s++) {
      const [qb = 0, qe = 0, kb = 0, ke = 0] = [cuQ[s], cuQ[s + 1], cuK[s], cuK[s + 1]];
      if (qb === qe) continue;
      const alone = heed.attention(rows(q, qb, qe), rows(k, kb, ke), rows(v, kb, ke), {
        ...options,
        layout: "blhd",
      });
      const part = all.output.data.subarray(qb * 64, qe * 64);
      expectClose(`sequence ${s}`, part, alone.output.data, 2 * MAX_ERROR);
    }
  });

  it("takes one list of offsets for self-attention, and halves", () => {
    const x = heed.tensor(Array.from(q.data), q.shape, { dtype: "bfloat16" });
    const { output } = heed.attentionVarlen(x, x, x, { cuSeqlensQ: cuQ, causal: true });
    expect(output.dtype).toBe("bfloat16");
    expect(output.shape).toEqual([24, 4, 8]);
    output.dispose();
    x.dispose();
  });

  it("names what is wrong", () => {
    const run = (options: object) => () =>
      heed.attentionVarlen(q, k, v, { cuSeqlensQ: cuQ, cuSeqlensK: cuK, ...options });
    expectError("range", ["cuSeqlensQ[0]"], run({ cuSeqlensQ: [1, 2, 3, 4, 5] }));
    expectError("range", ["cuSeqlensK[4]", "41"], run({ cuSeqlensK: [0, 1, 2, 3, 41] }));
    expectError("range", ["cuSeqlensQ[2]"], run({ cuSeqlensQ: [0, 5, 4, 6, 7] }));
    expectError("shape", ["cuSeqlensK", "5"], run({ cuSeqlensK: [0, 1] }));
    expectError("option", ["queryOffset is needed"], run({ causal: true }));
    expectError("range", ["alibiSlopes = nan"], run({ alibiSlopes: [0, 0, 0, Number.NaN] }));
    expectError("range", ["window.left: got -1"], run({ window: { left: -1 } }));
    expectError("option", ["windowLeft", "window: { left, right }"], run({ windowLeft: 1 }));
    expectError("shape", ["queryOffset"], run({ causal: true, queryOffset: [1, 2] }));
    expectError("option", ["keep"], run({ keep: [[true]] }));
    expectError("shape", ["q.shape"], () =>
      heed.attentionVarlen(rows(q, 0, 24), k, v, { cuSeqlensQ: cuQ }),
    );
  });
});
