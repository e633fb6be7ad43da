// Compiled by types.test.ts, never run: every line must type-check, and every @ts-expect-error must
// find an error.
import {
  type Heed,
  HeedError,
  load,
  type MatrixArgument,
  type PlainTensor,
  type Tensor,
  type TensorData,
  type TensorDType,
} from "heed";

type Equal<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const assertType = <_T extends true>(): void => {};

export async function check(): Promise<void> {
  const heed: Heed = await load({ threads: "auto", simd: "plain" });
  const rows = [
    [1, 0],
    [0, 1],
  ];

  const sizes = { embedDim: 2, numHeads: 1 };
  const stateful = heed.run("delta_rule", { q: rows, k: rows, v: rows }, { returnState: true });

  const plain = heed.attention(rows, rows, rows);
  assertType<Equal<typeof plain.output, PlainTensor<"float32">>>();
  // @ts-expect-error lse was not asked for
  plain.lse;
  // @ts-expect-error weights were not asked for
  plain.weights;

  const asked = heed.attention(rows, rows, rows, {
    causal: true,
    queryOffset: "end",
    window: { left: 3 },
    returnLse: true,
    returnWeights: false,
    returnScores: "raw",
  });
  assertType<Equal<typeof asked.lse, PlainTensor<"float32">>>();
  assertType<Equal<typeof asked.scores, PlainTensor<"float32">>>();
  const [asRows, perQuery] = [plain.output.toNested(), asked.lse.toNested()] as const;
  assertType<Equal<typeof asRows, number[][]>>();
  assertType<Equal<typeof perQuery, number[][][]>>();
  const perPair = asked.scores.toNested();
  assertType<Equal<typeof perPair, number[][][][]>>();
  // @ts-expect-error weights were asked not to be there
  asked.weights;

  const unknown: boolean = Math.random() < 0.5;
  const maybe = heed.attention(rows, rows, rows, { returnLse: unknown });
  assertType<Equal<typeof maybe.lse, PlainTensor<"float32"> | undefined>>();

  const vjp = heed.attention.vjp(rows, rows, rows, { bias: rows, width: 2, returnLse: true });
  assertType<Equal<typeof vjp.lse, PlainTensor<"float32">>>();
  const gradients = vjp.backward(rows);
  assertType<Equal<typeof gradients.bias, PlainTensor<"float32">>>();
  // @ts-expect-error sinks were not given
  gradients.sinks;
  // @ts-expect-error a number is no tensor
  gradients.width;
  // @ts-expect-error lse was not asked for
  heed.attention.vjp(rows, rows, rows).lse;
  const byName = heed.run.vjp("sigmoid", { q: rows, k: rows, v: rows });
  byName.backward(rows).q?.data;
  byName.dispose();

  const tensor = heed.tensor(new Float32Array(4), [2, 2]);
  const onTensors = heed.attention.vjp(rows, rows, rows).backward(tensor);
  assertType<Equal<typeof onTensors.q, Tensor<"float32">>>();
  assertType<Equal<typeof tensor.data, Float32Array>>();
  const resident = heed.attention(tensor, rows, rows, { returnWeights: true });
  assertType<Equal<typeof resident.output, Tensor<"float32">>>();
  assertType<Equal<typeof resident.weights, Tensor<"float32">>>();
  resident.output.dispose();

  const half = { data: new Uint16Array(4), shape: [2, 2], dtype: "bfloat16" } as const;
  const named = heed.run("retention", { q: half, k: rows, v: rows });
  assertType<Equal<typeof named.output, Tensor<"bfloat16"> | PlainTensor<"bfloat16">>>();
  const backwards = heed.run.vjp("sigmoid", { q: half, k: rows, v: rows });
  assertType<Equal<typeof backwards.output, typeof named.output>>();
  const single = heed.run("retention", { q: rows, k: rows, v: rows }).output;
  assertType<Equal<typeof single, Tensor<"float32"> | PlainTensor<"float32">>>();
  const scaled = heed.rope(rows, { pairing: "half", scaling: { type: "none" } });
  assertType<Equal<typeof scaled, PlainTensor<"float32">>>();

  // @ts-expect-error a typed array has no shape
  heed.attention(new Float32Array(4), rows, rows);
  // @ts-expect-error kernels compute in float32
  heed.attention({ data: new Float64Array(4), shape: [2, 2] }, rows, rows);
  heed.attention(rows, rows, rows, { sinks: new Float32Array(1) });
  // @ts-expect-error nor in lists
  heed.attention(rows, rows, rows, { sinks: new Float64Array(1) });
  await heed.reference("attention", { q: { data: new Float64Array(4), shape: [2, 2] } });
  const top = heed.analyze(rows, rows, { normalize: "top_k", topK: 1, topWeights: 2 });
  assertType<Equal<typeof top.topWeights, PlainTensor<"float32">>>();
  // @ts-expect-error nothing is asked for
  heed.analyze(rows, rows);

  const keep = heed.tensor([true, false], [1, 2]);
  assertType<Equal<typeof keep.dtype, "uint8">>();
  const masked = heed.attention(rows, rows, rows, { keep });
  assertType<Equal<typeof masked.output, Tensor<"float32">>>();

  const stored = heed.attention(half, rows, rows, { returnLse: true });
  assertType<Equal<typeof stored.output, PlainTensor<"bfloat16">>>();
  assertType<Equal<typeof stored.lse, PlainTensor<"float32">>>();
  const rounded = heed.tensor(new Float32Array(4), [2, 2], { dtype: "bfloat16" });
  assertType<Equal<typeof rounded, Tensor<"bfloat16">>>();
  const halfTensor = heed.tensor([1, 2, 3, 4], [2, 2], { dtype: "float16" });
  assertType<Equal<typeof halfTensor.dtype, "float16">>();
  const cache = new heed.KvCache({ numKvHeads: 1, headDim: 2, capacity: 8, dtype: "int8" });
  cache.append(rows, rows);
  const decoded = cache.attend(rows, { returnLse: true });
  assertType<Equal<typeof decoded.output, PlainTensor<"float32">>>();
  assertType<Equal<typeof decoded.lse, PlainTensor<"float32">>>();
  assertType<Equal<ReturnType<typeof cache.attend<typeof tensor>>["output"], Tensor<"float32">>>();
  const packed = heed.attentionVarlen(half, rows, rows, { cuSeqlensQ: [0, 2] });
  assertType<Equal<typeof packed.output, PlainTensor<"bfloat16">>>();
  // @ts-expect-error a cache needs its sizes
  new heed.KvCache({ capacity: 8 });

  const either = unknown ? tensor : rows;
  const mixed = heed.attention(either, rows, rows);
  assertType<Equal<typeof mixed.output, Tensor<"float32"> | PlainTensor<"float32">>>();

  const lengths = heed.tensor([1, 2], [2], { dtype: "int32" });
  assertType<Equal<typeof lengths.data, Int32Array>>();
  const data = { data: new Float32Array(4), shape: [2, 2] };
  heed.attention(data, plain.output, tensor, {
    bias: data,
    keyLengths: new Int32Array([2]),
    sinks: [0],
  });

  // @ts-expect-error a misspelt option
  heed.attention(rows, rows, rows, { casual: true });
  // @ts-expect-error there is no mask
  heed.attention(rows, rows, rows, { mask: rows });
  // @ts-expect-error a misspelt end
  heed.attention(rows, rows, rows, { window: { left: 1, rigth: 0 } });
  // @ts-expect-error a misspelt seed
  heed.attention(rows, rows, rows, { dropout: { p: 0.5, sed: 1 } });
  // @ts-expect-error the same in other functions
  heed.analyze(rows, rows, { entropy: true, window: { left: 1, rigth: 0 } });
  // @ts-expect-error and in pictures
  heed.explain({ window: { left: 1, rigth: 0 } }, { qLen: 2 });
  // @ts-expect-error and in layers
  new heed.MultiHeadAttention(sizes).forward(rows, rows, rows, { window: { lft: 1, left: 1 } });
  heed.attention(rows, rows, rows, { window: unknown ? { left: 1 } : undefined });
  heed.attention(rows, rows, rows, unknown ? { causal: true } : {});
  heed.attention(rows, rows, rows, { window: { left: undefined }, dropout: { p: 0, seed: 1n } });
  // @ts-expect-error a misspelt option of a cache
  cache.attend(rows, { returnLes: true });

  const [bits, whole, bytes] = [new Uint16Array(4), new Int32Array(4), new Uint8Array(4)];
  const numbers = new Float32Array(4);
  const shape = [2, 2];
  // @ts-expect-error a keep is booleans
  heed.attention(rows, rows, rows, { keep: { data: numbers, shape } });
  heed.attention(rows, rows, rows, { keep: { data: bytes, shape } });
  heed.attention(rows, rows, rows, { keep: { data: new Uint8ClampedArray(4), shape } });
  // @ts-expect-error lengths are whole numbers
  heed.attention(rows, rows, rows, { keyLengths: { data: numbers, shape: [4] } });
  // @ts-expect-error bare ones too
  heed.attention(rows, rows, rows, { keyLengths: numbers });
  heed.attention({ data: bits, shape, dtype: "float16" }, rows, rows);
  const generic = <T extends MatrixArgument>(x: T) =>
    heed.attention(x, x, x, { bias: x, causal: true }).output;
  generic(rows).dtype satisfies "float32";
  heed.attention(rows, rows, rows, { keepPairs: { data: whole, shape } });
  const given: TensorData = { data: numbers, shape };
  heed.attention(given, rows, rows, { keep: given, keyLengths: given });
  const parsed = JSON.parse("{}");
  heed.attention(parsed, rows, { data: parsed.k, shape: [2, 2] }, parsed.options);
  heed.attention(parsed, rows, rows, { keep: parsed.keep, window: parsed.window });
  heed.attention(rows, rows, rows, { bias: { data: parsed.bias, shape }, captured: parsed });

  // @ts-expect-error kernels compute in float32
  heed.tensor(new Float64Array(4), shape);
  // @ts-expect-error bits of halves say of which kind
  heed.tensor(bits, shape);
  // @ts-expect-error and not that they are something else
  heed.tensor(bits, shape, { dtype: "int32" });
  const chosen: TensorDType = unknown ? "float32" : "bfloat16";
  heed.tensor(numbers, shape, { dtype: chosen }) satisfies Tensor;
  heed.tensor([numbers.subarray(2)]) satisfies Tensor;

  const run = { q: rows, k: rows, v: rows };
  assertType<Equal<typeof stateful.state, Tensor<"float32"> | PlainTensor<"float32">>>();
  heed.run("flash", run, { returnTiles: true }).rescale.data satisfies Float32Array;
  heed.run("nystrom", run, { returnResidual: true }).residual.shape satisfies readonly number[];
  // @ts-expect-error it may not have been asked for
  heed.run("nystrom", run, { returnResidual: unknown }).residual.shape;
  heed.run.vjp("sigmoid", run, { returnLse: true }).lse.data satisfies Float32Array;
  const attribution = heed.attribution(rows, rows, rows, rows, { positive: true, pairs: true });
  attribution.pairs.data satisfies Float32Array;
  attribution.columnSums.data satisfies Float32Array;
  // @ts-expect-error declined
  heed.attribution(rows, rows, rows, rows, { pairs: true, columnSums: false }).columnSums;
  // @ts-expect-error pairs were not asked for
  heed.attribution(rows, rows, rows, rows).pairs;
  heed.headSimilarity(rows, rows).cosine.data satisfies Float32Array;
  heed.erasure(rows, rows, rows, { rows: [0, 1] }).change.data satisfies Float32Array;
  // @ts-expect-error a word that is not a stage
  heed.attention(rows, rows, rows, { returnScores: "all" });
  // @ts-expect-error a string is no tensor
  heed.attention("q", rows, rows);
  // @ts-expect-error unknown load option
  await load({ thread: 2 });

  const { output, lse } = heed.run(
    "scaled_dot_product",
    { q: rows, k: rows, v: rows },
    { scale: 1 },
  );
  // Of a rank that is not known here: read as deep as it is.
  output.toNested()[0][0] satisfies number[];
  output.toNested().map(([x]) => 2 * x) satisfies number[];
  output.toNested<number[][]>().flat() satisfies number[];
  assertType<Equal<typeof lse, Tensor<"float32"> | PlainTensor<"float32"> | undefined>>();
  const exact = await heed.reference("scaled_dot_product", { q: rows, k: rows, v: rows });
  exact.output.data satisfies Float64Array;

  const layer = new heed.MultiHeadAttention({ embedDim: 2, numHeads: 1 });
  layer.loadStateDict({ in_proj_weight: new Float32Array(12) }, { prefix: "" });
  const forward = layer.forward(rows, rows, rows, { returnWeights: true, averageWeights: true });
  assertType<Equal<typeof forward.weights, PlainTensor<"float32">>>();
  assertType<Equal<ReturnType<typeof layer.forward<typeof tensor>>["output"], Tensor<"float32">>>();
  // @ts-expect-error lse was not asked for
  forward.lse;
  // @ts-expect-error a misspelt option
  layer.forward(rows, rows, rows, { averageWeight: true });
  // @ts-expect-error the number of heads is missing
  new heed.MultiHeadAttention({ embedDim: 2 });

  const code: HeedError["code"] = "shape";
  new HeedError(code, "message") satisfies Error;
}
