// Compiled by types.test.ts, never run: every line must type-check, and every @ts-expect-error must
// find an error.
import {
  type HeedErrorCode,
  type PlainTensor,
  type RemoteHeed,
  type RemoteTensor,
  spawn,
} from "heed/worker";

type Equal<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const assertType = <_T extends true>(): void => {};

type Plain = PlainTensor<"float32">;

export async function check(signal: {
  aborted: boolean;
  addEventListener(type: "abort", listener: () => void): void;
  removeEventListener(type: "abort", listener: () => void): void;
}): Promise<void> {
  const heed: RemoteHeed = await spawn({ threads: "auto", simd: "plain" });
  const rows = [
    [1, 0],
    [0, 1],
  ];
  const threads: number = heed.threads;
  const ids: string[] = heed.mechanisms.map(({ id }) => id);

  const plain = await heed.attention(rows, rows, rows, { returnLse: true, transfer: true });
  assertType<Equal<typeof plain.output, PlainTensor<"float32">>>();
  assertType<Equal<typeof plain.lse, PlainTensor<"float32">>>();
  const resident = await heed.tensor(new Float32Array(4), [2, 2]);
  assertType<Equal<typeof resident, RemoteTensor<"float32">>>();
  const mixed = await heed.attention(resident, rows, rows, { signal, causal: true });
  const data: Float32Array = await mixed.output.data;
  const other = await heed.run("retention", { q: resident, k: rows, v: rows }, { signal });
  const elements: Float32Array = await other.output.data;

  const half = await heed.tensor(new Float32Array(4), [2, 2], { dtype: "bfloat16" });
  assertType<Equal<typeof half, RemoteTensor<"bfloat16">>>();
  const state = await heed.attention(resident, rows, rows, { returnLse: true });
  await heed.merge([{ output: state.output, lse: state.lse }], { signal });
  await heed.rollout([{ q: resident, k: resident, bias: resident }], { tokens: [0] });
  await heed.run.vjp("attention", { q: resident, k: rows, v: rows, captured: { x: resident } });
  await heed.keepFromCoo([0], [0], [2, 2], { transfer: true });

  const vjp = await heed.attention.vjp(rows, rows, rows);
  const { q } = await vjp.backward(rows);
  const gradient: Float32Array | Uint16Array = await q.data;
  await vjp.dispose();

  const cache = await new heed.KvCache({ numKvHeads: 1, headDim: 2 });
  await cache.append(rows, rows);
  const lengths: readonly number[] = await cache.lengths;
  const fork = await cache.fork([0]);
  await fork.attend(rows, { signal });
  const layer = await new heed.MultiHeadAttention({ embedDim: 8, numHeads: 2 });
  const { embedDim } = await layer.options;
  await heed.linear(rows, rows, undefined, { signal });
  const exact = await heed.reference("rope", { x: rows });
  const double: Float64Array = exact.output.data;
  const code: HeedErrorCode = "aborted";
  await heed.dispose();
  console_(gradient, threads, ids, data, elements, lengths, embedDim, double, code);

  const packed = { cuSeqlensQ: [0, 2], returnLse: true, signal } as const;
  const varlen = await heed.attentionVarlen(resident, rows, rows, packed);
  assertType<Equal<typeof varlen.lse, RemoteTensor<"float32">>>();
  const statistics = await heed.layerNorm(rows, { returnStatistics: true });
  assertType<Equal<typeof statistics.mean, PlainTensor<"float32">>>();
  const normed = await heed.layerNorm(resident, { signal });
  assertType<Equal<typeof normed, RemoteTensor<"float32">>>();
  const analysis = await heed.analyze(resident, rows, { entropy: true, topWeights: 1, signal });
  assertType<Equal<typeof analysis.entropy, RemoteTensor<"float32">>>();
  assertType<Equal<typeof analysis.topIndices, RemoteTensor<"int32">>>();
  const similarity = await heed.headSimilarity(rows, rows, { jensenShannon: true }, { signal });
  assertType<Equal<typeof similarity.jensenShannon, RemoteTensor<"float32"> | Plain>>();
  assertType<Equal<typeof similarity.cosine, RemoteTensor<"float32"> | Plain>>();
  (await heed.erasure(rows, rows, rows, { rows: [0, 1] })).change.shape satisfies readonly number[];
  (await heed.attribution(rows, rows, rows, rows, { pairs: true })).pairs.dtype satisfies "float32";
  const decoded = await cache.attend(resident, { returnLse: true });
  assertType<Equal<typeof decoded.lse, RemoteTensor<"float32">>>();
  (await fork.attend(rows, { returnLse: true })).lse satisfies Plain;
  const weighed = await layer.forward(rows, rows, rows, { returnWeights: true });
  assertType<Equal<typeof weighed.weights, PlainTensor<"float32">>>();
  (await layer.forward(rows, undefined, undefined, { returnLse: true })).lse
    .dtype satisfies "float32";
  const sizes = { embedDim: 4, numHeads: 2, kvRank: 2, nopeDim: 2, ropeDim: 2, headDimV: 2 };
  const latent = await new heed.MultiHeadLatentAttention({ ...sizes, rope: "half" });
  (await latent.forward(resident, { returnLse: true })).lse satisfies RemoteTensor<"float32">;
  const stepped = await heed.run("delta_rule", { q: rows, k: rows }, { returnState: true, signal });
  assertType<Equal<typeof stepped.state, RemoteTensor<"float32"> | Plain>>();
  const back = await heed.run.vjp("sigmoid", { q: rows, k: rows, v: rows }, { returnLse: true });
  assertType<Equal<typeof back.lse, RemoteTensor<"float32"> | Plain>>();
  (await heed.explain({ causal: true }, { qLen: 2 })) satisfies PlainTensor<"uint8">;
  (await heed.explain("bigbird", { q: rows, k: rows })).dtype satisfies "uint8";

  // @ts-expect-error there are no statistics unless asked for
  normed.mean;
  // @ts-expect-error maps were not compared by their differences
  similarity.frobenius;
  // @ts-expect-error weights were not asked for
  decoded.weights;
  // @ts-expect-error a misspelt option of a cache
  await cache.attend(rows, { returnLes: true });
  // @ts-expect-error a misspelt end of a window
  await heed.attention(rows, rows, rows, { window: { left: 1, rigth: 0 } });
  // @ts-expect-error bits of halves say of which kind
  await heed.tensor(new Uint16Array(4), [2, 2]);
  // @ts-expect-error a promise is not its value
  heed.attention(rows, rows, rows).output;
  // @ts-expect-error weights were not asked for
  plain.weights.data;
  // @ts-expect-error a signal is of the call, not of a layer
  await heed.rollout([{ q: resident, k: resident, signal }]);
  // @ts-expect-error PyTorch's word
  await heed.attention(rows, rows, rows, { attnMask: rows });
  // @ts-expect-error not a signal
  await heed.attention(rows, rows, rows, { signal: true });
  // @ts-expect-error a function cannot be a tensor
  await heed.softmax(() => rows);
}

declare function console_(...values: unknown[]): void;
