import { type Heed, load, type MultiHeadAttentionOptions } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { expectClose, expectError, randomData } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

const SIZES = { embedDim: 8, numHeads: 4, numKvHeads: 2 };

/** A state dict of 4 query heads and 2 KV heads of 2. */
function makeState(): Record<string, { data: Float32Array; shape: number[] }> {
  return {
    in_proj_weight: randomData([16, 8], 1),
    in_proj_bias: randomData([16], 2),
    "out_proj.weight": randomData([8, 8], 3),
    "out_proj.bias": randomData([8], 4),
  };
}

function makeLayer(options: MultiHeadAttentionOptions = SIZES) {
  const layer = new heed.MultiHeadAttention(options);
  layer.loadStateDict(makeState());
  return layer;
}

describe("heed.MultiHeadAttention", () => {
  it("agrees with the mechanism called by its weights", async () => {
    const [query, key] = [randomData([2, 3, 8], 5), randomData([2, 6, 8], 6)];
    const state = makeState();
    const rows = (from: number, to: number, shape: number[]) => ({
      data: (state.in_proj_weight as { data: Float32Array }).data.slice(from * 8, to * 8),
      shape,
    });
    const biases = (state.in_proj_bias as { data: Float32Array }).data;
    const inputs = {
      query,
      key,
      value: key,
      wQ: rows(0, 8, [4, 2, 8]),
      wK: rows(8, 12, [2, 2, 8]),
      wV: rows(12, 16, [2, 2, 8]),
      wO: { ...(state["out_proj.weight"] as { data: Float32Array }), shape: [8, 4, 2] },
      bQ: { data: biases.slice(0, 8), shape: [4, 2] },
      bK: { data: biases.slice(8, 12), shape: [2, 2] },
      bV: { data: biases.slice(12, 16), shape: [2, 2] },
      bO: state["out_proj.bias"] as { data: Float32Array; shape: number[] },
    };
    const layer = makeLayer();
    const options = { returnWeights: true, returnLse: true, softcap: 2 } as const;
    const mine = layer.forward(query, key, undefined, options);
    const same = heed.run("grouped_query", inputs, options);
    expect(mine.output.data).toEqual(same.output.data);
    expect(mine.weights.data).toEqual(same.weights?.data);
    const truth = await heed.reference("grouped_query", inputs, options);
    expectClose("output", mine.output.data, truth.output.data, 1e-5);
    expectClose("lse", mine.lse.data, truth.lse?.data ?? [], 1e-5);
    expect(mine.weights.shape).toEqual([2, 4, 3, 6]);
    layer.dispose();
  });

  it("attends to itself when given the query alone", () => {
    const layer = makeLayer();
    const x = randomData([1, 5, 8], 7);
    const alone = layer.forward(x, undefined, undefined, { causal: true });
    expect(alone.output.data).toEqual(layer.forward(x, x, x, { causal: true }).output.data);
    expect(Object.keys(alone)).toEqual(["output"]);
    layer.dispose();
  });

  it("takes nested arrays whose rows are typed arrays", () => {
    const layer = makeLayer();
    const x = randomData([1, 3, 8], 7);
    const rows = [0, 8, 16].map((begin) => x.data.subarray(begin, begin + 8));
    expect(layer.forward([rows]).output.data).toEqual(layer.forward(x).output.data);
    layer.dispose();
  });

  it("gives Tensors when given one, plain results otherwise", () => {
    const layer = makeLayer();
    const data = randomData([1, 5, 8], 7);
    const x = heed.tensor(data.data, data.shape);
    const { output } = layer.forward(x);
    expect(output.disposed).toBe(false);
    const plain = layer.forward(data).output;
    expect("dispose" in plain).toBe(false);
    expect(Float32Array.from(output.data)).toEqual(plain.data);
    output.dispose();
    x.dispose();
    layer.dispose();
  });

  it("prunes heads, averages weights and adds a key of zeros", () => {
    const layer = new heed.MultiHeadAttention({ ...SIZES, addZeroAttn: true });
    layer.loadStateDict(makeState());
    const x = randomData([1, 3, 8], 7);
    const all = layer.forward(x, x, x, { returnWeights: true, averageWeights: true });
    expect(all.weights.shape).toEqual([1, 3, 4]);
    const rows = all.weights.toNested() as number[][][];
    for (const row of rows[0] ?? []) {
      expect(row.reduce((a, b) => a + b, 0)).toBeCloseTo(1, 6);
    }
    const none = layer.forward(x, x, x, { headMask: new Float32Array(4) });
    const bias = makeState()["out_proj.bias"]?.data ?? new Float32Array();
    expect(none.output.data.subarray(0, 8)).toEqual(bias);
    layer.dispose();
  });

  it("takes prefixed names, Maps and bare typed arrays of a checkpoint", () => {
    const layer = new heed.MultiHeadAttention(SIZES);
    const state = makeState();
    const bare = Object.entries(state).map(([name, { data }]) => [`layers.0.${name}`, data]);
    layer.loadStateDict(new Map([...bare, ["layers.1.x", new Float32Array(1)]] as never), {
      prefix: "layers.0.",
    });
    const x = randomData([1, 3, 8], 7);
    const other = makeLayer();
    expect(layer.forward(x).output.data).toEqual(other.forward(x).output.data);
    layer.dispose();
    other.dispose();
  });

  it("frees its weights and keeps the old ones when a load fails", () => {
    const before = heed.memory();
    const layer = makeLayer();
    const x = randomData([1, 3, 8], 7);
    const wanted = layer.forward(x).output.data;
    const broken = { ...makeState(), "out_proj.bias": randomData([9], 1) };
    expectError("shape", ["out_proj.bias", "[9]", "[8]"], () => layer.loadStateDict(broken));
    expect(layer.forward(x).output.data).toEqual(wanted);
    layer.loadStateDict(makeState());
    layer.dispose();
    layer.dispose();
    expect(layer.disposed).toBe(true);
    expect(heed.memory().tensors).toBe(before.tensors);
    expect(heed.memory().bytes).toBe(before.bytes);
    expectError("disposed", ["layer"], () => layer.forward(x));
  });
});

describe("heed.MultiHeadAttention refuses", () => {
  const make = (options: unknown) => () =>
    new heed.MultiHeadAttention(options as MultiHeadAttentionOptions);

  it("sizes that do not fit together", () => {
    expectError("option", ["embedDim"], make({ numHeads: 2 }));
    expectError("option", ["did you mean `numHeads`"], make({ embedDim: 8, num_heads: 2 }));
    expectError("range", ["embedDim", "9", "numHeads = 2"], make({ embedDim: 9, numHeads: 2 }));
    expectError("range", ["numKvHeads"], make({ embedDim: 8, numHeads: 4, numKvHeads: 3 }));
    expectError("range", ["numHeads"], make({ embedDim: 8, numHeads: 0 }));
    expectError("range", ["numHeads"], make({ embedDim: 8, numHeads: 1.5 }));
    expectError("option", ["bias"], make({ embedDim: 8, numHeads: 2, bias: 1 }));
  });

  it("states that are not the layer's", () => {
    const layer = new heed.MultiHeadAttention(SIZES);
    const { in_proj_bias, ...rest } = makeState();
    expectError("option", ["missing in_proj_bias"], () => layer.loadStateDict(rest));
    const extra = { ...rest, in_proj_bias, bias_k: randomData([1, 1, 4], 1) } as never;
    expectError("option", ["bias_k"], () => layer.loadStateDict(extra));
    expectError("option", ["prefix"], () => layer.loadStateDict(rest as never, { prefix: "a." }));
    expectError("option", ["no weights yet"], () => layer.forward(randomData([1, 3, 8], 7)));
    layer.dispose();
  });

  it("tensors and options that do not fit", () => {
    const layer = makeLayer();
    const x = randomData([1, 3, 8], 7);
    expectError("shape", ["query", "embedDim = 8"], () => layer.forward(randomData([1, 3, 7], 1)));
    expectError("option", ["key", "options come fourth"], () =>
      layer.forward(x, { causal: true } as never),
    );
    const Layer = heed.MultiHeadAttention as unknown as (options: object) => unknown;
    expectError("option", ["new heed.MultiHeadAttention(options)"], () => Layer(SIZES));
    expectError("option", ["bias: got null"], () => {
      new heed.MultiHeadAttention({ ...SIZES, bias: null as never });
    });
    expect(layer).toBeInstanceOf(heed.MultiHeadAttention);
    expect(heed.MultiHeadAttention.name).toBe("MultiHeadAttention");
    const list: unknown[] = [];
    list.push(list);
    expectError("shape", ["query", "4 levels"], () => layer.forward(list as never));
    expectError("shape", ["kdim = 8"], () => layer.forward(x, randomData([1, 3, 7], 1)));
    expectError("shape", ["query"], () => layer.forward(randomData([3, 8], 1)));
    expectError("shape", ["batch"], () => layer.forward(x, randomData([2, 3, 8], 1)));
    const longer = randomData([1, 4, 8], 1);
    expectError("option", ["queryOffset"], () =>
      layer.forward(x, longer, longer, { causal: true }),
    );
    expectError("option", ["keep"], () => layer.forward(x, x, x, { mask: [[true]] } as never));
    expectError("shape", ["headMask"], () =>
      layer.forward(x, x, x, { headMask: new Float32Array(3) }),
    );
    layer.dispose();
  });
});
