// Compiled by types.test.ts, never run: every line must type-check, and every @ts-expect-error must
// find an error.
import {
  type AttentionOptions,
  type documentsFromCuSeqlens,
  type Heed,
  keepFromCoo,
  keepFromCsr,
  load,
  type Pattern,
  type PlainTensor,
  type Tensor,
} from "heed";

type Equal<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const assertType = <_T extends true>(): void => {};

export async function check(): Promise<void> {
  const heed: Heed = await load();
  const rows = [
    [1, 0],
    [0, 1],
  ];

  heed.attention(rows, rows, rows, { pattern: "dilated", reach: 2, dilation: [1, 2] });
  heed.attention(rows, rows, rows, { pattern: "neighborhood", grid: [1, 2], windowSize: 1 });
  heed.attention(rows, rows, rows, { pattern: "swin_window", grid: [1, 2], shift: [0, 0] });
  heed.attention(rows, rows, rows, { pattern: "axial", grid: [1, 2], axis: 0 });
  heed.attention(rows, rows, rows, { blockKeep: [[true]], blockSize: [2, 2] });
  const words: Pattern[] = ["longformer", "bigbird", "strided", "fixed"];
  const options: AttentionOptions = { pattern: words[0], globalTokens: new Int32Array(1) };
  heed.attention(rows, rows, rows, options);
  // @ts-expect-error no such pattern
  heed.attention(rows, rows, rows, { pattern: "stride" });
  // @ts-expect-error a grid is a list of extents
  heed.attention(rows, rows, rows, { pattern: "axial", grid: 4 });
  // @ts-expect-error one number, or queries and keys
  heed.attention(rows, rows, rows, { blockKeep: [[true]], blockSize: [1, 2, 3] });

  const tensor = heed.tensor([0, 0], [2], { dtype: "int32" });
  const documents = { queryDocuments: tensor, keyDocuments: tensor };
  const { output } = heed.attention(rows, rows, rows, documents);
  assertType<Equal<typeof output, Tensor<"float32">>>();

  const picture = heed.explain({ causal: true }, { qLen: 2, kvLen: 2 });
  assertType<Equal<typeof picture, PlainTensor<"uint8">>>();
  const resident = heed.explain(documents, { qLen: 2 });
  assertType<Equal<typeof resident, Tensor<"uint8">>>();
  const byId = heed.explain("longformer", { q: rows, k: rows }, { reach: 1 });
  assertType<Equal<typeof byId, Tensor<"uint8"> | PlainTensor<"uint8">>>();
  // @ts-expect-error the sizes are missing
  heed.explain({ causal: true });
  // @ts-expect-error a misspelt option
  heed.explain({ casual: true }, { qLen: 2 });

  assertType<Equal<ReturnType<typeof keepFromCoo>, PlainTensor<"uint8">>>();
  heed.attention(rows, rows, rows, { keep: keepFromCsr([0, 1, 2], [0, 1], [2, 2]) });
  heed.attention(rows, rows, rows, { keep: keepFromCoo([0, 1], new Int32Array([0, 1]), [2, 2]) });
  assertType<Equal<ReturnType<typeof documentsFromCuSeqlens>, PlainTensor<"int32">>>();
  // @ts-expect-error two extents
  keepFromCoo([0], [0], [2]);

  const block = new heed.TransformerBlock({ embedDim: 2, numHeads: 1, activation: "silu" });
  block.loadWeights({ wUp: new Float32Array(16) });
  const forward = block.forward(rows, { causal: true });
  assertType<Equal<typeof forward.output, PlainTensor<"float32">>>();
  assertType<Equal<ReturnType<typeof block.forward<typeof tensor>>["output"], Tensor<"float32">>>();
  assertType<Equal<typeof block.options.ffDim, number>>();
  // @ts-expect-error a block does not return weights
  block.forward(rows, { returnWeights: true });
  // @ts-expect-error no such activation
  new heed.TransformerBlock({ embedDim: 2, numHeads: 1, activation: "tanh" });
  // @ts-expect-error the number of classes is missing
  new heed.AttentionClassifier({ vocabulary: 4, embedDim: 2, numHeads: 1 });
  const sizes = { embedDim: 4, numHeads: 1, qRank: 2, kvRank: 2, nopeDim: 2, ropeDim: 2 } as const;
  const latent = new heed.MultiHeadLatentAttention({ ...sizes, rope: "interleaved" });
  assertType<
    Equal<ReturnType<typeof latent.forward<typeof tensor>>["output"], Tensor<"float32">>
  >();
  // @ts-expect-error the pairing has no default
  new heed.MultiHeadLatentAttention(sizes);
}
