import { type Heed, load } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { type Data, expectClose, expectError, randomData } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

type Weights = Record<string, Data>;

/** Weights of these shapes, scaled so that products stay near 1. */
function draw(shapes: Record<string, number[]>, seed: number): Weights {
  const weights = Object.entries(shapes).map(([name, shape], n) => {
    const { data } = randomData(shape, seed + n);
    return [name, { data: data.map((value) => value / 2), shape }];
  });
  return Object.fromEntries(weights);
}

const SELF = {
  wQ: [4, 2, 8],
  wK: [2, 2, 8],
  wV: [2, 3, 8],
  wO: [8, 4, 3],
};
const SELF_BIASES = { bQ: [4, 2], bK: [2, 2], bV: [2, 3], bO: [8] };
const HEADS = { embedDim: 8, numHeads: 4, numKvHeads: 2, headDimV: 3 };

/** Weights of a block with a gate and without biases. */
const GATED = {
  ...SELF,
  wUp: [5, 8],
  wGate: [5, 8],
  wDown: [8, 5],
  norm1Weight: [8],
  norm2Weight: [8],
};

function makeBlock() {
  const block = new heed.TransformerBlock({
    ...HEADS,
    ffDim: 5,
    bias: false,
    gated: true,
    norm: "rms",
    activation: "silu",
    epsilon: 1e-4,
  });
  block.loadWeights(draw(GATED, 1));
  return block;
}

describe("heed.TransformerBlock", () => {
  const x = randomData([2, 6, 8], 90);

  it("agrees with the oracle of the mechanism", async () => {
    const block = makeBlock();
    const inside = { causal: true, keyLengths: new Int32Array([6, 2]), softcap: 3 };
    const { output } = block.forward(x, inside);
    const { keyLengths, ...rest } = inside;
    const truth = await heed.reference(
      "transformer_block",
      { x, ...draw(GATED, 1), keyLengths },
      { ...rest, norm: "rms", normOrder: "pre", activation: "silu", epsilon: 1e-4 },
    );
    expect(output.shape).toEqual([2, 6, 8]);
    expectClose("output", output.data, truth.output.data, 2e-5);
    block.dispose();
  });

  it("has the defaults that its types promise", () => {
    const block = new heed.TransformerBlock({ embedDim: 8, numHeads: 2 });
    expect(block.options).toEqual({
      embedDim: 8,
      numHeads: 2,
      numKvHeads: 2,
      headDim: 4,
      headDimV: 4,
      ffDim: 32,
      bias: true,
      gated: false,
      norm: "layer",
      normBias: true,
      normOrder: "pre",
      activation: "gelu",
      epsilon: 1e-5,
      addZeroAttn: false,
    });
    expect(Object.isFrozen(block.options)).toBe(true);
  });

  it("gives Tensors when given one, and frees its weights", () => {
    const before = heed.memory().tensors;
    const block = makeBlock();
    const resident = heed.tensor(x.data, x.shape);
    const { output } = block.forward(resident);
    const plain = block.forward(x).output;
    expect("dispose" in plain).toBe(false);
    expect(Float32Array.from(output.data)).toEqual(plain.data);
    output.dispose();
    resident.dispose();
    block.dispose();
    block.dispose();
    expect(block.disposed).toBe(true);
    expect(heed.memory().tensors).toBe(before);
    expectError("disposed", ["layer"], () => block.forward(x));
  });

  it("keeps its weights when a load fails", () => {
    const block = makeBlock();
    const wanted = block.forward(x).output.data;
    const { wUp: _, ...without } = draw(GATED, 1);
    expectError("option", ["weights: missing wUp"], () => block.loadWeights(without));
    const wrong = { ...draw(GATED, 1), wUp: randomData([4, 8], 1) };
    expectError("shape", ["wUp", "[5, 8]"], () => block.loadWeights(wrong));
    const more = { ...draw(GATED, 1), bUp: randomData([5], 1) };
    expectError("option", ["weights", "`bUp`"], () => block.loadWeights(more));
    expectError("unsupported", ["gate"], () => block.loadStateDict({}));
    expect(block.forward(x).output.data).toEqual(wanted);
    block.dispose();
  });

  it("checks its options and what forward is given", () => {
    const make = (options: object) => () => new heed.TransformerBlock(options as never);
    expectError("option", ["embedDim"], make({ numHeads: 2 }));
    expectError("range", ["embedDim", "multiple"], make({ embedDim: 7, numHeads: 2 }));
    expectError("option", ["norm", '"rms"'], make({ embedDim: 8, numHeads: 2, norm: "batch" }));
    expectError("range", ["epsilon"], make({ embedDim: 8, numHeads: 2, epsilon: 0 }));
    expectError("option", ["`dmodel`"], make({ dmodel: 8 }));
    const empty = new heed.TransformerBlock({ embedDim: 8, numHeads: 2 });
    expectError("option", ["no weights yet", "loadStateDict"], () => empty.forward(x));
    const block = makeBlock();
    expectError("shape", ["x", "embedDim = 8"], () => block.forward(randomData([1, 2, 7], 1)));
    const odd = (options: object) => () => block.forward(x, options as never);
    expectError("option", ["`norm`"], odd({ norm: "rms" }));
    expectError("option", ["`returnWeights`"], odd({ returnWeights: true }));
    expectError("shape", ["headMask", "num_heads"], odd({ headMask: new Float32Array(3) }));
    block.dispose();
  });
});

describe("heed.AttentionClassifier", () => {
  const SHAPES = {
    ...SELF,
    ...SELF_BIASES,
    embedding: [11, 8],
    positionTable: [7, 8],
    poolQuery: [8],
    wClass: [3, 8],
    bClass: [3],
  };
  const SIZES = {
    ...HEADS,
    vocabulary: 11,
    numClasses: 3,
    maxLen: 7,
    pooling: "attention",
  } as const;
  const tokens = [
    [1, 2, 3, 4, 5],
    [10, 0, 10, 9, 9],
  ];

  it("agrees with the oracle of the mechanism", async () => {
    const classifier = new heed.AttentionClassifier(SIZES);
    const weights = draw(SHAPES, 20);
    classifier.loadWeights(weights);
    const keyLengths = new Int32Array([5, 2]);
    const { output } = classifier.forward(tokens, { keyLengths });
    const inputs = { tokens, ...weights, keyLengths };
    const truth = await heed.reference("attention_classifier", inputs, { pooling: "attention" });
    expect(output.shape).toEqual([2, 3]);
    expectClose("output", output.data, truth.output.data, 2e-5);
    const none = classifier.forward(tokens, { keyLengths: new Int32Array([0, 0]) });
    expect(none.output.data.subarray(0, 3)).toEqual(weights.bClass?.data);
    classifier.dispose();
  });

  it("asks for no table and no pool query that its options do not want", () => {
    const { positionTable: _p, poolQuery: _q, ...weights } = draw(SHAPES, 20);
    const { maxLen: _m, ...sizes } = SIZES;
    const classifier = new heed.AttentionClassifier({ ...sizes, pooling: "max" });
    expect("maxLen" in classifier.options).toBe(false);
    classifier.loadWeights(weights);
    expect(classifier.forward(tokens).output.shape).toEqual([2, 3]);
    classifier.dispose();
  });

  it("refuses tokens outside the vocabulary and sequences beyond the table", () => {
    const classifier = new heed.AttentionClassifier(SIZES);
    expectError("option", ["no weights yet", "loadWeights()"], () => classifier.forward(tokens));
    classifier.loadWeights(draw(SHAPES, 20));
    expectError("range", ["tokens", "11"], () => classifier.forward([[11]]));
    expectError("shape", ["positionTable"], () => classifier.forward([[1, 1, 1, 1, 1, 1, 1, 1]]));
    expectError("dtype", ["tokens"], () => classifier.forward(randomData([1, 2], 1)));
    expectError("option", ["vocabulary"], () => new heed.AttentionClassifier({} as never));
    classifier.dispose();
  });
});

describe("heed.MultiHeadLatentAttention", () => {
  const SIZES = {
    embedDim: 10,
    numHeads: 2,
    qRank: 6,
    kvRank: 5,
    nopeDim: 4,
    ropeDim: 2,
    headDimV: 3,
  };
  const STATE = {
    "q_a_proj.weight": [6, 10],
    "q_a_layernorm.weight": [6],
    "q_b_proj.weight": [12, 6],
    "kv_a_proj_with_mqa.weight": [7, 10],
    "kv_a_layernorm.weight": [5],
    "kv_b_proj.weight": [14, 5],
    "o_proj.weight": [10, 6],
  };
  /** Shapes of the mechanism's own weights. */
  const ownShapes = (ropeDim: number) => ({
    wDq: [6, 10],
    wUq: [2, 4, 6],
    wQr: [2, ropeDim, 6],
    wDkv: [5, 10],
    wKr: [ropeDim, 10],
    wUk: [2, 4, 5],
    wUv: [2, 3, 5],
    wO: [10, 2, 3],
  });
  const x = randomData([2, 5, 10], 70);

  /** The published module in loops: one row of x per token, one head at a time, causal. */
  function published(state: Weights): number[] {
    const row = ({ data, shape }: Data, n: number): number[] => {
      const width = shape.at(-1) as number;
      return Array.from(data.subarray(n * width, (n + 1) * width));
    };
    const dot = (a: number[], b: number[]): number =>
      a.reduce((sum, value, n) => sum + value * (b[n] as number), 0);
    const apply = (name: string, of: number[]): number[] => {
      const weight = state[`${name}.weight`] as Data;
      return Array.from({ length: weight.shape[0] as number }, (_, n) => dot(row(weight, n), of));
    };
    const rmsNorm = (name: string, of: number[]): number[] => {
      const root = Math.sqrt(dot(of, of) / of.length + 1e-6);
      const { data } = state[`${name}.weight`] as Data;
      return of.map((value, n) => (value / root) * (data[n] as number));
    };
    const turn = ([a = 0, b = 0]: number[], at: number): number[] => [
      a * Math.cos(at) - b * Math.sin(at),
      a * Math.sin(at) + b * Math.cos(at),
    ];
    const out: number[] = [];
    for (let b = 0; b < 2; b++) {
      const queries: number[][][] = [];
      const keys: number[][][] = [];
      const values: number[][][] = [];
      for (let t = 0; t < 5; t++) {
        const rowOfX = row(x, b * 5 + t);
        const q = state["q_proj.weight"]
          ? apply("q_proj", rowOfX)
          : apply("q_b_proj", rmsNorm("q_a_layernorm", apply("q_a_proj", rowOfX)));
        const compressed = apply("kv_a_proj_with_mqa", rowOfX);
        const kv = apply("kv_b_proj", rmsNorm("kv_a_layernorm", compressed.slice(0, 5)));
        const shared = turn(compressed.slice(5), t);
        const heads = [0, 1];
        queries.push(
          heads.map((h) => [
            ...q.slice(6 * h, 6 * h + 4),
            ...turn(q.slice(6 * h + 4, 6 * h + 6), t),
          ]),
        );
        keys.push(heads.map((h) => [...kv.slice(7 * h, 7 * h + 4), ...shared]));
        values.push(heads.map((h) => kv.slice(7 * h + 4, 7 * h + 7)));
      }
      for (let i = 0; i < 5; i++) {
        const attended = [0, 1].flatMap((h) => {
          const e = Array.from({ length: i + 1 }, (_, j) =>
            Math.exp(dot(queries[i]?.[h] ?? [], keys[j]?.[h] ?? []) / Math.sqrt(6)),
          );
          const total = e.reduce((sum, value) => sum + value, 0);
          return [0, 1, 2].map((n) =>
            e.reduce((sum, p, j) => sum + (p / total) * (values[j]?.[h]?.[n] ?? NaN), 0),
          );
        });
        out.push(...apply("o_proj", attended));
      }
    }
    return out;
  }

  it.each(["naive", "absorbed"] as const)("computes what DeepSeek's module does, %s", (form) => {
    const layer = new heed.MultiHeadLatentAttention({ ...SIZES, rope: "interleaved", form });
    const state = draw(STATE, 40);
    layer.loadStateDict(state);
    const { output, weights, lse } = layer.forward(x, {
      causal: true,
      returnWeights: true,
      returnLse: true,
    });
    expect([output.shape, weights.shape, lse.shape]).toEqual([
      [2, 5, 10],
      [2, 2, 5, 5],
      [2, 2, 5],
    ]);
    expectClose("output", output.data, published(state), 2e-5);
    layer.dispose();
  });

  it("computes what DeepSeek's module does where queries are not compressed", () => {
    const { qRank: _, ...sizes } = SIZES;
    const layer = new heed.MultiHeadLatentAttention({ ...sizes, rope: "interleaved" });
    const others = Object.entries(STATE).filter(([name]) => !name.startsWith("q_"));
    const state = draw({ "q_proj.weight": [12, 10], ...Object.fromEntries(others) }, 40);
    layer.loadStateDict(state);
    const { output } = layer.forward(x, { causal: true });
    expectClose("output", output.data, published(state), 2e-5);
    expectError("option", ["state", "q_proj.weight"], () => layer.loadStateDict(draw(STATE, 1)));
    layer.dispose();
  });

  it("stretches its rotation", async () => {
    const scaling = { type: "yarn", factor: 8, originalLen: 4, attentionFactor: 1 } as const;
    const layer = new heed.MultiHeadLatentAttention({
      ...SIZES,
      ropeDim: 4,
      rope: "interleaved",
      ropeBase: 50,
      ropeScaling: scaling,
      norms: false,
    });
    const weights = draw(ownShapes(4), 50);
    layer.loadWeights(weights);
    const { output } = layer.forward(x);
    const params = { rope: "interleaved", ropeBase: 50, scaling: "yarn", scalingFactor: 8 };
    const named = { ...params, originalLen: 4, attentionFactor: 1 };
    const truth = await heed.reference("multi_head_latent", { x, ...weights }, named);
    expectClose("output", output.data, truth.output.data, 2e-5);
    const unscaled = { rope: "interleaved", ropeBase: 50 };
    const plain = await heed.reference("multi_head_latent", { x, ...weights }, unscaled);
    const moved = truth.output.data.map((value, n) =>
      Math.abs(value - (plain.output.data[n] ?? 0)),
    );
    expect(Math.max(...moved)).toBeGreaterThan(1e-3);
    expect(layer.options.ropeScaling).toEqual(scaling);
    layer.dispose();
  });

  it("takes the mechanism's own names", async () => {
    const weights = draw(ownShapes(2), 50);
    const layer = new heed.MultiHeadLatentAttention({ ...SIZES, rope: "half", norms: false });
    layer.loadWeights(weights);
    const { output } = layer.forward(x);
    const truth = await heed.reference("multi_head_latent", { x, ...weights }, { rope: "half" });
    expectClose("output", output.data, truth.output.data, 2e-5);
    layer.dispose();
  });

  it("checks its options", () => {
    const make = (options: object) => () =>
      new heed.MultiHeadLatentAttention({ ...SIZES, ...options } as never);
    expectError("option", ["rope", "no default"], make({}));
    expectError("range", ["ropeDim", "3", "even"], make({ rope: "half", ropeDim: 3 }));
    expectError("range", ["ropeBase", "1"], make({ rope: "half", ropeBase: 1 }));
    expectError("option", ["form", '"absorbed"'], make({ rope: "half", form: "fast" }));
    expectError("option", ["kvRank"], make({ rope: "half", kvRank: undefined }));
    expectError("option", ["ropeScaling"], make({ rope: "none", ropeScaling: { type: "none" } }));
    expectError("option", ["ropeScaling"], make({ rope: "half", ropeScaling: 4 }));
    expectError(
      "option",
      ["ropeScaling.type", '"yarn"'],
      make({ rope: "half", ropeScaling: { factor: 4 } }),
    );
    const layer = make({ rope: "none", ropeDim: 3 })();
    expectError("option", ["state: missing", "q_b_proj.weight"], () => layer.loadStateDict({}));
    expectError("option", ["no weights yet"], () => layer.forward(x));
    layer.dispose();
  });
});

describe("refusals of C++", () => {
  it("name arguments as JavaScript does, given or not", () => {
    const x = randomData([1, 2, 8], 1);
    expectError("option", ["wUp: missing"], () =>
      heed.run("transformer_block", { x, ...draw(SELF, 1) }),
    );
    const q = randomData([1, 2, 3, 4], 1);
    const attend = (options: object) => () => heed.attention(q, q, q, options as never);
    expectError("option", ["scoreMatrix"], attend({ score: "bilinear" }));
    expectError("option", ["copeTable"], attend({ normalize: "cope" }));
    expectError("option", ["blockIndptr"], attend({ blockIndices: [0] }));
  });
});
