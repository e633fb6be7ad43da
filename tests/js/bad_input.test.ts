import { runInNewContext } from "node:vm";
import { type Heed, load } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { expectClose, expectError, expectRejection, randomData } from "./support.js";

function inItself(): unknown[] {
  const list: unknown[] = [];
  list.push(list);
  return list;
}

/** A typed array whose buffer was transferred away. */
function detached(): Int32Array {
  const array = new Int32Array(2);
  structuredClone(array, { transfer: [array.buffer] });
  return array;
}

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

const q = randomData([2, 4, 3, 8], 1);
const k = randomData([2, 2, 5, 8], 2);
const v = randomData([2, 2, 5, 6], 3);

// Called through `any`: these are the mistakes that TypeScript would have caught.
const attention = (...args: unknown[]): unknown =>
  (heed.attention as (...args: unknown[]) => unknown)(...args);
const withOptions = (options: unknown): unknown => attention(q, k, v, options);
const withQ = (value: unknown): unknown => attention(value, k, v);

describe("shapes", () => {
  it.each([
    ["ranks that differ", () => attention(q, k, randomData([5, 6], 1)), ["v", "rank 2"]],
    [
      "rank 1",
      () => attention(randomData([8], 1), randomData([8], 1), randomData([8], 1)),
      ["q", "rank 1"],
    ],
    ["batches that differ", () => attention(q, randomData([1, 2, 5, 8], 1), v), ["k", "batch"]],
    ["dims that differ", () => attention(q, randomData([2, 2, 5, 7], 1), v), ["k", "dim is 7"]],
    [
      "lengths that differ",
      () => attention(q, k, randomData([2, 2, 4, 6], 1)),
      ["v", "length is 4"],
    ],
    ["kv heads that differ", () => attention(q, k, randomData([2, 1, 5, 6], 1)), ["v", "heads"]],
    [
      "heads not divisible",
      () => attention(randomData([2, 3, 3, 8], 1), k, v),
      ["3 heads", "2 heads"],
    ],
    [
      "no kv heads",
      () => attention(q, randomData([2, 0, 5, 8], 1), randomData([2, 0, 5, 6], 1)),
      ["0 heads"],
    ],
    [
      "keep that does not broadcast",
      () => withOptions({ keep: { data: new Uint8Array(20), shape: [4, 5] } }),
      ["keep", "[4, 5]"],
    ],
    [
      "keep of rank 3",
      () => withOptions({ keep: { data: new Uint8Array(30), shape: [2, 3, 5] } }),
      ["keep", "ambiguous"],
    ],
    [
      "bias of rank 3",
      () => withOptions({ bias: randomData([2, 3, 5], 1) }),
      ["bias", "ambiguous"],
    ],
    ["too many lengths", () => withOptions({ keyLengths: [1, 2, 3] }), ["keyLengths", "[2]"]],
    ["too few sinks", () => withOptions({ sinks: [0, 0] }), ["sinks", "[4]"]],
    [
      "too few slopes",
      () => withOptions({ alibiSlopes: [1], queryOffset: 0 }),
      ["alibiSlopes", "[4]"],
    ],
    [
      "offsets for another batch",
      () => withOptions({ causal: true, queryOffset: [0, 0, 0] }),
      ["queryOffset", "2"],
    ],
    ["a typed array without a shape", () => withQ(new Float32Array(8)), ["q", "{ data, shape }"]],
    [
      "a typed array shorter than its shape",
      () => withQ({ data: new Float32Array(7), shape: [2, 4, 3, 8] }),
      ["q", "7", "192"],
    ],
    [
      "a typed array longer than its shape",
      () => withQ({ data: new Float32Array(9), shape: [1, 1, 1, 8] }),
      ["q", "9", "8"],
    ],
    ["ragged nested arrays", () => withQ([[1, 2], [3]]), ["q[1]", "1 entries"]],
    ["nesting of five levels", () => withQ([[[[[1]]]]]), ["q", "4 levels"]],
    ["a list in itself", () => heed.tensor(inItself() as never), ["data", "4 levels"]],
    [
      "a shape that is no array",
      () => withQ({ data: new Float32Array(8), shape: 8 }),
      ["q.shape", "8"],
    ],
    [
      "head dim 0 without a scale",
      () =>
        attention(
          randomData([1, 1, 2, 0], 1),
          randomData([1, 1, 2, 0], 1),
          randomData([1, 1, 2, 3], 1),
        ),
      ["scale"],
    ],
  ] as [string, () => unknown, string[]][])("refuses %s", (_, work, words) => {
    expectError("shape", words, work);
  });

  it.each([NaN, -1, 2.5, 2 ** 31, 2 ** 32 + 2, 1e20, Infinity, "4", null, 3n])(
    "refuses the dimension %s",
    (dim) => {
      expectError("range", ["q.shape[2]"], () =>
        withQ({ data: new Float32Array(8), shape: [1, 1, dim, 8] }),
      );
    },
  );
});

describe("sizes", () => {
  it.each([
    [[1, 1, 2 ** 31 - 1, 2 ** 31 - 1]],
    [[2 ** 30, 2 ** 30, 2 ** 30, 2 ** 30]],
    [[1, 1, 2 ** 20, 2 ** 12]],
  ])("refuses the shape %s before allocating", (shape) => {
    const before = heed.memory().heapBytes;
    expectError("memory", ["q"], () => withQ({ data: new Float32Array(8), shape }));
    expectError("memory", ["data"], () => heed.tensor(new Float32Array(8), shape));
    expect(heed.memory().heapBytes).toBe(before);
  });

  it("refuses extents beyond 32 bits where there are no elements either", () => {
    const empty = (...shape: number[]) => ({ data: new Float32Array(0), shape });
    const keys = empty(1, 1, 2 ** 32 + 2, 0);
    expectError("range", ["k.shape[2]", "4294967298", "2^31 - 1"], () =>
      heed.attention(empty(1, 1, 2, 0), keys, keys, { scale: 1, returnLse: true }),
    );
    expectError("range", ["shape[0]: got 4294967296"], () => heed.tensor([], [2 ** 32, 0]));
  });

  it("refuses weights that no 32-bit memory can hold, and goes on", () => {
    const long = randomData([1, 1, 70_000, 1], 1);
    expectError("memory", ["weights"], () =>
      heed.attention(long, long, long, { returnWeights: true }),
    );
    expect(heed.attention(q, k, v).output.shape).toEqual([2, 4, 3, 6]);
  });

  it("refuses results that find no room together, and goes on", () => {
    // 2.2 GB each: one would fit into a 32-bit memory, two do not.
    const long = randomData([1, 1, 23_500, 1], 1);
    const asked = { returnWeights: true, returnScores: "raw" } as const;
    expectError("memory", ["no room"], () => heed.attention(long, long, long, asked));
    expect(heed.attention(q, k, v).output.shape).toEqual([2, 4, 3, 6]);
  });
});

describe("element types", () => {
  it("refuses Float64Array with advice", () => {
    expectError("dtype", ["q", "Float64Array", "Float32Array.from"], () =>
      withQ({ data: new Float64Array(192), shape: [2, 4, 3, 8] }),
    );
  });

  it("refuses a float keep and explains the polarity", () => {
    const keep = randomData([3, 5], 1);
    expectError("dtype", ["keep", "true", "may attend", "bias"], () => withOptions({ keep }));
    expectError("dtype", ["keep", "may attend"], () =>
      withOptions({ keep: Array(3).fill([0, -1e9, 0, 0, 0]) }),
    );
    expectError("dtype", ["keep"], () => withOptions({ keep: heed.tensor(keep.data, keep.shape) }));
  });

  it.each([
    ["BigInt64Array", new BigInt64Array(192)],
    ["Int32Array", new Int32Array(192)],
    ["Uint8Array", new Uint8Array(192)],
    ["Uint16Array", new Uint16Array(192)],
    ["Int8Array", new Int8Array(192)],
    ["DataView", new DataView(new ArrayBuffer(768))],
  ])("refuses q as %s", (_, data) => {
    expectError("dtype", ["q"], () => withQ({ data, shape: [2, 4, 3, 8] }));
  });

  it("takes halves only where attention converts them", () => {
    const data = new Uint16Array(192);
    const withKind = (dtype: string) => () => withQ({ data, shape: [2, 4, 3, 8], dtype });
    expectError("dtype", ["q", "Uint16Array"], withKind("float32"));
    expectError("dtype", ["int4"], () => heed.tensor([1, 2], [2], { dtype: "int4" as "float32" }));
    expectError("dtype", ["bias", "bfloat16"], () =>
      heed.run("attention", {
        q: randomData([1, 1, 2, 2], 1),
        k: randomData([1, 1, 2, 2], 2),
        v: randomData([1, 1, 2, 2], 3),
        bias: { data: new Uint16Array(4), shape: [2, 2], dtype: "bfloat16" },
      }),
    );
  });

  it.each([
    ["a list with a symbol", [Symbol("float32")]],
    ["an object without a prototype", Object.create(null)],
    ["an array that is gone", detached()],
    ["a list with the word", ["float32"]],
  ])("refuses %s as a dtype", (_, dtype) => {
    expectError("dtype", ["dtype: got"], () => heed.tensor([1], [1], { dtype }));
  });

  it("refuses a dtype that contradicts the array", () => {
    const { data, shape } = q;
    expectError("dtype", ["int32", "Float32Array"], () => withQ({ data, shape, dtype: "int32" }));
  });

  it.each([
    ["booleans as q", () => withQ([[true, false]])],
    ["strings in nested arrays", () => withQ([["1", "2"]])],
    ["numbers mixed with booleans", () => withQ([[1, true]])],
    ["lengths in floats", () => withOptions({ keyLengths: new Float32Array(2) })],
    ["a boolean bias", () => withOptions({ bias: Array(3).fill(Array(5).fill(true)) })],
  ])("refuses %s", (_, work) => {
    expectError("dtype", [], work);
  });
});

describe("numbers", () => {
  it.each([
    ["scale", NaN],
    ["scale", Infinity],
    ["softcap", 0],
    ["softcap", -1],
    ["softcap", NaN],
    ["queryOffset", 0.5],
    ["queryOffset", NaN],
    ["queryOffset", [0, 1.5]],
    ["window", { left: -1 }],
    ["window", { right: 1.5 }],
    ["window", { left: Infinity }],
    ["keyLengths", [1, 6]],
    ["keyLengths", [-1, 2]],
    ["keyLengths", [1.5, 2]],
    ["keyLengths", [NaN, 2]],
    ["sinks", [0, 0, 0, NaN]],
    ["sinks", [0, 0, 0, Infinity]],
    ["alibiSlopes", [0, 0, 0, -Infinity]],
  ])("refuses %s = %j", (name, value) => {
    expectError("range", [name], () => withOptions({ queryOffset: 0, [name]: value }));
  });

  it("refuses slopes and windows for impossible counts", () => {
    for (const n of [0, -1, 1.5, NaN, "4"]) {
      expectError("range", ["alibiSlopes"], () => heed.alibiSlopes(n as number));
      expectError("range", ["lastN"], () => heed.lastN(n as number));
    }
  });
});

describe("options", () => {
  it.each([
    ["mask", ["keep", "bias", "true"]],
    ["attn_mask", ["keep", "bias"]],
    ["isCausal", ["causal"]],
    ["casual", ["did you mean `causal`"]],
    ["softCap", ["did you mean `softcap`"]],
    ["return_lse", ["did you mean `returnLse`"]],
    ["key_lengths", ["did you mean `keyLengths`"]],
    ["windowLeft", ["window"]],
    ["frobnicate", ["known names are"]],
  ])("refuses the unknown option %s with advice", (name, words) => {
    expectError("option", [name, ...words], () => withOptions({ [name]: 1 }));
  });

  it.each([
    ["causal", "yes"],
    ["causal", 1],
    ["causal", null],
    ["scale", "0.5"],
    ["scale", null],
    ["queryOffset", "start"],
    ["window", 4],
    ["window", [1, 2]],
    ["window", { left: 1, rigth: 2 }],
    ["returnScores", "all"],
    ["returnScores", true],
    ["layout", "lbhd"],
    ["score", "dott"],
    ["normalize", 3],
    ["keep", "causal"],
    ["keep", null],
  ])("refuses %s = %j", (name, value) => {
    expectError("option", [name], () => withOptions({ queryOffset: 0, [name]: value }));
  });

  it.each([
    ["a Map", new Map([["causal", true]])],
    ["inherited fields", Object.create({ causal: true })],
    [
      "a getter of a class",
      new (class {
        get causal() {
          return true;
        }
      })(),
    ],
    ["a promise", Promise.resolve({ causal: true })],
    ["a date", new Date(0)],
    ["a list", [true]],
  ])("refuses %s, whose fields would be ignored", (_, options) => {
    expectError("option", ["options", "a plain object"], () => withOptions(options));
  });

  it("takes plain objects of any origin", () => {
    const bare = Object.assign(Object.create(null), { causal: true, queryOffset: 0 });
    expect(() => withOptions(bare)).not.toThrow();
    expect(() => withOptions(JSON.parse('{ "causal": true, "queryOffset": 0 }'))).not.toThrow();
    expect(() => withOptions(runInNewContext("({ causal: true, queryOffset: 0 })"))).not.toThrow();
  });

  it("refuses an expression that is too long before it is copied", () => {
    const scoreMod = "1".repeat(2 ** 28);
    const before = heed.memory().heapBytes;
    expectError("range", ["scoreMod", "268435456", "4096"], () => withOptions({ scoreMod }));
    expect(heed.memory().heapBytes).toBe(before);
  });

  it("names options of single numbers as JavaScript does", () => {
    expectError("range", ["numBuckets"], () =>
      heed.t5Bucket(1, { direction: "causal", numBuckets: -1 }),
    );
  });

  it.each<[object, string[]]>([
    [{ reach: 1 }, ["reach", '"dilated" or "longformer"']],
    [{ dilation: 2 }, ["dilation", '"neighborhood"']],
    [{ globalTokens: [0] }, ["globalTokens", '"longformer"']],
    [{ stride: 2 }, ["stride", '"strided" or "fixed"']],
    [{ summary: 1 }, ["summary", '"fixed"']],
    [{ grid: [5] }, ["grid", '"axial"']],
    [{ axis: 0 }, ["axis", '"axial"']],
    [{ windowSize: 2 }, ["windowSize", '"swin_window" or "neighborhood"']],
    [{ shift: 1 }, ["shift", '"swin_window"']],
    [{ blockSize: 2 }, ["blockSize", '"bigbird", blockKeep or blockIndptr']],
    [{ randomBlocks: 1 }, ["randomBlocks", '"bigbird"']],
    [{ lastBlocks: 1 }, ["lastBlocks", '"bigbird"']],
    [{ patternSeed: 1, pattern: "strided" }, ["patternSeed", '"bigbird"']],
    [{ topK: 1 }, ["topK", 'normalize "top_k"']],
    [{ sigmoidBias: 1 }, ["sigmoidBias", '"sigmoid"']],
    [{ lengthPower: 1, normalize: "sigmoid" }, ["lengthPower", '"relu" or "relu_squared"']],
    [{ kernel: "gaussian" }, ["kernel", '"kernel_sum"']],
    [{ relativeRows: "clip" }, ["relativeRows", "relativeKeys"]],
    [{ relativeMaxDistance: 8 }, ["relativeMaxDistance", '"log_span"']],
    [{ bucketDirection: "causal" }, ["bucketDirection", "bucketBias"]],
    [{ bucketMaxDistance: 8 }, ["bucketMaxDistance", "bucketBias"]],
  ])("refuses what the call would not read: %o", (options, words) => {
    const square = randomData([1, 4, 4, 8], 1);
    expectError("option", [...words, "is read only by"], () =>
      attention(square, square, square, options),
    );
    const [inputs, params] = "globalTokens" in options ? [options, {}] : ([{}, options] as const);
    const all = { q: square, k: square, v: square, ...inputs };
    expectError("option", words, () => heed.run("attention", all, params as never));
  });

  it("lets rows that settle a pattern take its numbers", () => {
    const square = { q: randomData([1, 4, 4, 8], 1), k: randomData([1, 4, 4, 8], 2) };
    const inputs = { ...square, v: square.q, globalTokens: [0] };
    expect(heed.run("longformer", inputs, { reach: 1 }).output.shape).toEqual([1, 4, 4, 8]);
  });

  it("names arguments as they were written", () => {
    const square = randomData([1, 4, 4, 8], 1);
    const call = (options: object) => () => attention(square, square, square, options);
    const bucketBias = randomData([32, 4], 1);
    expectError("range", ["bucketMaxDistance = 4"], call({ bucketBias, bucketMaxDistance: 4 }));
    const three = randomData([3, 4], 1);
    expectError("range", ["rows of bucketBias = 3"], call({ bucketBias: three }));
    const seed = (patternSeed: unknown) => call({ pattern: "bigbird", patternSeed });
    expectError("range", ["patternSeed: got -1, expected a whole number from 0"], seed(-1));
    expectError("range", ["patternSeed", "18446744073709551616n"], seed(2n ** 64n));
    const long = randomData([1, 1, 64, 4], 2);
    const drawn = (patternSeed: number | bigint) =>
      attention(long, long, long, { pattern: "bigbird", blockSize: 2, patternSeed }).output.data;
    expect(drawn(2n ** 64n - 1n)).not.toEqual(drawn(1));
    expect(seed(-1)).not.toThrow(/no limit/);
    expectError("range", ["window.left", "no limit"], call({ window: { left: -1 } }));
    expectError("option", ["queryOffset[0]"], () =>
      attention(q, k, v, { causal: true, queryOffset: new Array(2) }),
    );
    expectError("option", ["windowSize", "swin_window"], () =>
      heed.run("longformer", { q: square, k: square, v: square }, { windowSize: 2 }),
    );
  });

  it("refuses values that no message can serialise", () => {
    expectError("option", ["layout", "1n"], () => withOptions({ layout: 1n }));
    expectError("option", ["id", "1n"], () => heed.run(1n as unknown as string, { q, k, v }));
  });

  it("refuses a window beside one of its sides", () => {
    const params = { window: { left: 1 }, windowRight: 0, queryOffset: 0 };
    const run = () => heed.run("scaled_dot_product", { q, k, v }, params);
    expectError("option", ["windowRight", "window"], run);
  });

  it("says which element of a tensor is missing", () => {
    expectError("dtype", ["data[0]: got undefined"], () => heed.tensor(new Array(2), [2]));
    expect(() => heed.tensor(new Array(2), [2])).not.toThrow("data.data");
  });

  it("refuses misspelt options of a tensor", () => {
    const tensor = heed.tensor as (...args: unknown[]) => unknown;
    const before = heed.memory().tensors;
    const misspelt = () => tensor([1, 2], [2], { dtpye: "int32" });
    expectError("option", ["dtpye", "known names are dtype"], misspelt);
    expectError("option", ["options"], () => tensor([1, 2], [2], null));
    expect(heed.memory().tensors).toBe(before);
  });

  it.each([
    [0.1, "option", "dropout"],
    [{ seed: 7 }, "option", "dropout.p"],
    [{ p: 1 }, "range", "dropout.p"],
    [{ p: 0.1, seed: -1 }, "range", "dropout.seed"],
    [{ p: 0.1, seed: 2n ** 64n }, "range", "dropout.seed"],
    [{ p: 0.1, sead: 7 }, "option", "sead"],
  ] as const)("refuses dropout %o", (dropout, code, name) => {
    expectError(code, [name], () => withOptions({ dropout }));
  });

  it.each([0, 1.5])("refuses topK %d", (topK) => {
    expectError("range", ["topK", ">= 1"], () => withOptions({ normalize: "top_k", topK }));
  });

  it.each(["score", "normalize"])("lists the words of %s", (name) => {
    expectError("option", [name, "nothing", "one of"], () => withOptions({ [name]: "nothing" }));
  });

  it.each([
    [{ causal: true }, "causal"],
    [{ window: { left: 1 } }, "window"],
    [{ alibiSlopes: [1, 1, 1, 1] }, "alibiSlopes"],
  ])("asks for queryOffset with %j when lengths differ, naming both choices", (options, name) => {
    expectError("option", ["queryOffset", name, "0", '"end"'], () => withOptions(options));
  });

  it("takes undefined as absent", () => {
    const absent = ["causal", "scale", "keep", "window", "layout", "score", "dropout"];
    const options = Object.fromEntries(absent.map((name) => [name, undefined]));
    expectClose(
      "output",
      heed.attention(q, k, v, options).output.data,
      heed.attention(q, k, v).output.data,
      0,
    );
  });

  it("compares no endless name with all that are known", () => {
    const name = "causal".repeat(2 ** 18);
    const started = performance.now();
    for (const work of [() => withOptions({ [name]: 1 }), () => heed.run(name, { q, k, v })]) {
      expectError("option", ["known"], work);
      expect(work).not.toThrow(name);
    }
    // Comparing takes tens of seconds.
    expect(performance.now() - started).toBeLessThan(4000);
  });

  it("refuses options that are no object, and missing tensors", () => {
    expectError("option", ["options"], () => withOptions(true));
    expectError("option", ["options"], () => withOptions(null));
    expectError("option", ["k", "missing"], () => attention(q));
    expectError("option", ["q"], () => withQ(null));
    expectError("option", ["q"], () => withQ("tensor"));
    expectError("option", ["q"], () => withQ({ data: new Float32Array(3) }));
  });
});

describe("run and reference", () => {
  it("refuse an unknown mechanism with the nearest id", async () => {
    expectError("option", ["kernel_regression"], () => heed.run("kernel_regresion", { q, k, v }));
    expectError("option", ["known ids"], () => heed.run("zzz", { q, k, v }));
    await expectRejection("option", ["scaled_dot_product"], () =>
      heed.reference("scaled_dot_produkt", { q, k, v }),
    );
  });

  it("refuse inputs and params that the mechanism does not take", () => {
    expectError("option", ["inputs", "sinks"], () =>
      heed.run("kernel_regression", { q, k, v, sinks: [0] }),
    );
    expectError("option", ["params", "softcap"], () =>
      heed.run("kernel_regression", { q, k, v }, { softcap: 1 }),
    );
    expectError("option", ["`causal` is a parameter", "third"], () =>
      heed.run("attention", { q, k, v, causal: true } as never),
    );
    expectError("option", ["`bias` is an input", "second"], () =>
      heed.run("attention", { q, k, v }, { bias: [[0]] }),
    );
    expectError("option", ["kernel", "gaussian"], () =>
      heed.run("kernel_regression", { q, k, v }, { kernel: "gauss" }),
    );
    expectError("range", ["width"], () => heed.run("kernel_regression", { q, k, v }, { width: 0 }));
    expectError("option", ["v", "missing"], () => heed.run("kernel_regression", { q, k }));
  });
});

describe("buffers that are gone", () => {
  it("refuses a transferred buffer", () => {
    const data = new Float32Array(192);
    structuredClone(data.buffer, { transfer: [data.buffer] });
    expectError("disposed", ["q", "detached"], () => withQ({ data, shape: [2, 4, 3, 8] }));
    expectError("disposed", ["q", "detached"], () => withQ({ data, shape: [1, 1, 0, 8] }));
  });

  it.each([
    ["dilation", { pattern: "dilated", reach: 1 }],
    ["blockSize", { pattern: "bigbird" }],
    ["grid", { pattern: "axial" }],
    ["windowSize", { pattern: "swin_window", grid: [2, 2] }],
    ["shift", { pattern: "swin_window", grid: [2, 2], windowSize: 1 }],
  ])("refuses one in %s", (name, options) => {
    const x = randomData([1, 1, 4, 2], 1);
    const call = () => attention(x, x, x, { ...options, [name]: detached() });
    expectError("disposed", [name, "detached"], call);
  });

  it("refuses a disposed tensor, wherever it is used", () => {
    const tensor = heed.tensor(q.data, q.shape);
    tensor.dispose();
    tensor.dispose();
    expect(tensor.disposed).toBe(true);
    expectError("disposed", ["q"], () => withQ(tensor));
    expectError("disposed", ["tensor"], () => tensor.data);
    expectError("disposed", ["tensor"], () => tensor.toNested());
  });
});
