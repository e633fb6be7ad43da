import { type Heed, load } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import {
  expectClose,
  expectError,
  largest,
  MAX_ERROR,
  RECURRENT_MAX_ERROR,
  randomData,
} from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

const q = randomData([2, 4, 9, 16], 1);
const k = randomData([2, 2, 40, 16], 2);
const v = randomData([2, 2, 40, 5], 3);
const slope = [0.5, 0.25, 0.125, 0.0625];
const plain = <T extends { data: ArrayLike<number> }>({ data }: T): number[] => Array.from(data);

describe("user expressions", () => {
  it("equal ALiBi, causal and softcap when they say the same", () => {
    const position = { queryOffset: "end" } as const;
    const built = heed.attention(q, k, v, {
      ...position,
      alibiSlopes: slope,
      causal: true,
      softcap: 2,
    });
    const user = heed.attention(q, k, v, {
      ...position,
      softcap: 2,
      scoreMod: "score - slope[h] * abs(position - kvIndex)",
      keepMod: "kvIndex <= position",
      captured: { slope },
    });
    expectClose("output", user.output.data, plain(built.output), 4 * MAX_ERROR);
  });

  it("agree with the oracle through run and reference", async () => {
    const inputs = { q, k, v, captured: { myTable: randomData([9, 40], 4) } };
    const params = {
      scoreMod: "score > 0 ? score * 2 : myTable[qIndex, kvIndex]",
      keepMod: "(kvIndex + b) % 3 != 1",
      returnWeights: true,
    };
    const result = heed.run("scaled_dot_product", inputs, params);
    const oracle = await heed.reference("scaled_dot_product", inputs, params);
    expectClose("output", result.output.data, plain(oracle.output), 8 * MAX_ERROR);
    expectClose("weights", result.weights?.data ?? [], plain(oracle.weights ?? { data: [] }), 1e-5);
  });

  it("replace weights after the normaliser", async () => {
    const halved = heed.attention(q, k, v, { probMod: "prob / 2", returnWeights: true });
    const whole = heed.attention(q, k, v, { returnWeights: true });
    const half = (values: number[]): number[] => values.map((x) => x / 2);
    expectClose("output", halved.output.data, half(plain(whole.output)), 2 * MAX_ERROR);
    expectClose("weights", halved.weights.data, half(plain(whole.weights)), 2 * MAX_ERROR);

    const inputs = { q, k, v, captured: { gate: randomData([4, 40], 5) } };
    const params = {
      probMod: "prob * gate[h, kvIndex] + (kvIndex == 3)",
      causal: true,
      queryOffset: 2,
      dropout: { p: 0.25, seed: 8 },
      returnWeights: true,
    };
    const result = heed.run("sigmoid", inputs, params);
    const oracle = await heed.reference("sigmoid", inputs, params);
    expectClose("output", result.output.data, plain(oracle.output), 16 * MAX_ERROR);
    expectClose("weights", result.weights?.data ?? [], plain(oracle.weights ?? { data: [] }), 1e-5);
  });

  it("read numbers, levels and remainders as the oracle does", async () => {
    const inputs = { q: [[1]], k: [[1]], v: [[1]] };
    const score = (scoreMod: string) =>
      heed.run("scaled_dot_product", inputs, { scoreMod, returnLse: true }).lse?.data[0];
    const oracle = async (scoreMod: string) =>
      (await heed.reference("scaled_dot_product", inputs, { scoreMod, returnLse: true })).lse
        ?.data[0];
    const deep = (open: string, close: string, levels: number) =>
      `${open.repeat(levels)}1${close.repeat(levels)}`;
    for (const [text, value] of [
      ["5e-324", 0],
      [".5e1 + 5.", 10],
      ["1 % 0.125", 0],
      ["1e8 % 3", 1],
      ["-1 % 5", 4],
      [deep("abs(", ")", 64), 1],
      [deep("(", ")", 64), 1],
      [deep("-", "", 64), 1],
    ] as const) {
      expect(score(text), text).toBeCloseTo(value, 5);
      expect(await oracle(text), text).toBeCloseTo(value, 12);
    }
    for (const text of ["0x10", "1e", "nan"]) {
      expectError("option", ["scoreMod"], () => score(text));
      await expect(oracle(text), text).rejects.toThrow(/score_?mod/i);
    }
    expectError("option", ["64 deep"], () => score(deep("abs(", ")", 65)));
  });

  it("take resident tensors and free what they copy", () => {
    const resident = heed.tensor(new Float32Array(slope), [4]);
    const before = heed.memory().tensors;
    const result = heed.attention(q, k, v, {
      scoreMod: "score - slope[h]",
      captured: { slope: resident },
    });
    result.output.dispose();
    expect(heed.memory().tensors).toBe(before);
    resident.dispose();
  });

  it("are refused with the place of the mistake", () => {
    const attend = (options: object) => () => heed.attention(q, k, v, options as never);
    expectError(
      "option",
      ["scoreMod", "`scroe` is unknown", "score, b, h"],
      attend({ scoreMod: "scroe + 1" }),
    );
    expectError("option", ["scoreMod", "an expression as text"], attend({ scoreMod: () => 0 }));
    expectError("option", ["keepMod", "`score` is unknown"], attend({ keepMod: "score > 0" }));
    expectError(
      "option",
      ["probMod", "`score` is unknown", "prob, b, h"],
      attend({ probMod: "score * 2" }),
    );
    expectError(
      "shape",
      ["table", "2 dimensions"],
      attend({
        scoreMod: "table[h]",
        captured: { table: [[1, 2]] },
      }),
    );
    expectError(
      "shape",
      ["`key_lengths` has 2 dimensions"],
      attend({ scoreMod: "score + key_lengths[h]", captured: { key_lengths: [[1, 2]] } }),
    );
    expectError("option", ["captured", "scoreMod, keepMod"], attend({ captured: { a: [1] } }));
    expectError("option", ["queryOffset"], attend({ scoreMod: "score - position" }));
    expectError(
      "option",
      ["captured name"],
      attend({ scoreMod: "score", captured: { "1x": [1] } }),
    );
    expect(heed.attention(q, k, v).output.shape).toEqual([2, 4, 9, 5]);
  });
});

describe("feature maps of the user", () => {
  const [short, values] = [randomData([2, 2, 9, 16], 6), randomData([2, 2, 9, 5], 7)];
  const inputs = { q, k: short, v: values };

  it("equal the words that say the same", () => {
    for (const [featureMap, featureMod] of [
      ["elu_plus_one", "x > 0 ? x + 1 : exp(x)"],
      ["relu", "max(x, 0)"],
    ]) {
      const built = heed.run("linear", inputs, { featureMap, causal: true });
      const user = heed.run("linear", inputs, { featureMod, causal: true });
      expectClose("output", user.output.data, plain(built.output), 2 * RECURRENT_MAX_ERROR);
    }
  });

  it("agree with the oracle, causal or not, in 16 bits too", async () => {
    const captured = { weight: randomData([4, 16], 8) };
    const numbers = (result?: { toNested(): unknown }): number[] => {
      if (result === undefined) expect.fail("a result is missing");
      return (result.toNested() as number[]).flat(9);
    };
    for (const dtype of ["float32", "float16", "bfloat16"] as const) {
      using resident = heed.tensor(Array.from(q.data), q.shape, { dtype });
      const given = { ...inputs, q: resident, captured };
      for (const causal of [false, true]) {
        const params = {
          featureMap: "user",
          featureMod: "(isKey ? exp(x / 2) : sigmoid(x)) * abs(weight[h, d]) + b",
          causal,
          returnState: true,
        };
        const result = heed.run("linear", given, params);
        const oracle = await heed.reference("linear", given, params);
        const [output, state] = [numbers(oracle.output), numbers(oracle.state)];
        // Outputs are stored as q is.
        const unit = { float32: 0, float16: 2 ** -11, bfloat16: 2 ** -8 }[dtype];
        const bound = (RECURRENT_MAX_ERROR + unit) * largest(output);
        expectClose(`${dtype} output`, numbers(result.output), output, bound);
        const stateBound = RECURRENT_MAX_ERROR * largest(state);
        expectClose(`${dtype} state`, numbers(result.state), state, stateBound);
      }
    }
  });

  it("give the same token by token", () => {
    const params = { featureMod: "exp(x) + d / 16", causal: true, returnState: true };
    const whole = heed.run("linear", inputs, params);
    const token = ({ data, shape }: typeof q, t: number): typeof q => {
      const [batch = 0, heads = 0, length = 0, dim = 0] = shape;
      const picked = Array.from({ length: batch * heads }, (_, n) =>
        Array.from(data.subarray((n * length + t) * dim, (n * length + t + 1) * dim)),
      );
      return { data: Float32Array.from(picked.flat()), shape: [batch, heads, 1, dim] };
    };
    let initialState: (typeof whole)["state"];
    for (let t = 0; t < 9; t++) {
      const one = { q: token(q, t), k: token(short, t), v: token(values, t) };
      const step = heed.run("linear", initialState ? { ...one, initialState } : one, params);
      initialState = step.state;
      const expected = token({ data: whole.output.data as Float32Array, shape: [2, 4, 9, 5] }, t);
      expectClose(`token ${t}`, step.output.data, plain(expected), 2 * RECURRENT_MAX_ERROR);
    }
  });

  it("are refused with the place of the mistake", () => {
    const run = (params: object) => () => heed.run("linear", inputs, params as never);
    expectError(
      "option",
      ["featureMod", "`gelu` is unknown", "x, b, h, d, isKey"],
      run({ featureMod: "gelu(x)" }),
    );
    expectError(
      "option",
      ["featureMod", "as text", "exp(x)"],
      run({ featureMod: (x: number) => x }),
    );
    expectError("option", ["featureMod", "missing"], run({ featureMap: "user" }));
    expectError(
      "option",
      ["featureMod", "featureMap = relu"],
      run({ featureMap: "relu", featureMod: "x" }),
    );
    expectError("option", ["featureMap", "user"], run({ featureMap: "gelu" }));
    expectError("option", ["featureMod", "`score` is unknown"], run({ featureMod: "score" }));
  });
});
