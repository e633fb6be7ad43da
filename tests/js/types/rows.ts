// Compiled by types.test.ts, never run: every line must type-check, and every @ts-expect-error must
// find an error.
import { type Heed, type LayerNormResult, load, type PlainTensor, type Tensor } from "heed";

type Equal<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const assertType = <_T extends true>(): void => {};

export async function check(): Promise<void> {
  const heed: Heed = await load();
  const rows = [
    [1, 0],
    [0, 1],
  ];
  const resident = heed.tensor(rows);

  const plain = heed.softmax(rows, { axis: 0 });
  assertType<Equal<typeof plain, PlainTensor<"float32">>>();
  const logs = heed.logSoftmax(resident);
  assertType<Equal<typeof logs, Tensor<"float32">>>();
  const masked = heed.maskedSoftmax(rows, { lengths: [1, 2], keep: [true, false] });
  assertType<Equal<typeof masked, PlainTensor<"float32">>>();
  const normed = heed.layerNorm(rows, { epsilon: 1e-6 });
  assertType<Equal<typeof normed, PlainTensor<"float32">>>();
  const statistics = heed.layerNorm(resident, { returnStatistics: true });
  assertType<Equal<typeof statistics, LayerNormResult<Tensor<"float32">>>>();
  const rms = heed.rmsNorm(resident, { axis: -1 });
  assertType<Equal<typeof rms, Tensor<"float32">>>();

  // @ts-expect-error an axis is a number
  heed.softmax(rows, { axis: "last" });
  // @ts-expect-error PyTorch's word
  heed.softmax(rows, { dim: 0 });
  // @ts-expect-error d2l's word
  heed.maskedSoftmax(rows, { validLens: [1, 2] });
  // @ts-expect-error RMS norm has no bias
  heed.rmsNorm(rows, { bias: [1, 2] });
  // @ts-expect-error there are no statistics unless asked for
  normed.mean;
}
