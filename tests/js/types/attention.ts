// Compiled by types.test.ts, never run: every line must type-check, and every @ts-expect-error must
// find an error.
import { type Heed, HeedError, load, type PlainTensor, type Tensor } from "heed";

type Equal<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const assertType = <_T extends true>(): void => {};

export async function check(): Promise<void> {
  const heed: Heed = await load({ threads: "auto", simd: "plain" });
  const rows = [
    [1, 0],
    [0, 1],
  ];

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
