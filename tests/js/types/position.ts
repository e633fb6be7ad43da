// Compiled by types.test.ts, never run: every line must type-check, and every @ts-expect-error must
// find an error.
import { type Heed, load, type PlainTensor, type Tensor } from "heed";

type Equal<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const assertType = <_T extends true>(): void => {};

export async function check(): Promise<void> {
  const heed: Heed = await load();
  const rows = [
    [1, 0],
    [0, 1],
  ];
  const tensor = heed.tensor(new Float32Array(4), [2, 2]);

  const plain = heed.rope(rows, { pairing: "half" });
  assertType<Equal<typeof plain, PlainTensor<"float32">>>();
  const resident = heed.rope(tensor, { pairing: "half", offset: [1] });
  assertType<Equal<typeof resident, Tensor<"float32">>>();
  const byTable = heed.rope(rows, { pairing: "half", cos: tensor, sin: tensor });
  assertType<Equal<typeof byTable, Tensor<"float32">>>();
  // @ts-expect-error the pairing has no default
  heed.rope(rows, {});
  // @ts-expect-error no such pairing
  heed.rope(rows, { pairing: "neox" });
  // @ts-expect-error a misspelt option
  heed.rope(rows, { pairing: "half", ofset: 1 });
  heed.rope(rows, {
    pairing: "half",
    scaling: { type: "llama3", factor: 8, originalLen: 8192, lowFreqFactor: 1 },
  });
  // @ts-expect-error YaRN needs the trained length
  heed.rope(rows, { pairing: "half", scaling: { type: "yarn", factor: 8 } });

  const scaled = heed.xpos(rows, { pairing: "interleaved", side: "key" });
  assertType<Equal<typeof scaled, PlainTensor<"float32">>>();
  // @ts-expect-error the side has no default
  heed.xpos(rows, { pairing: "interleaved" });

  const table = heed.sinusoidal(4, 2, { codeLayout: "concatenated" });
  assertType<Equal<typeof table, PlainTensor<"float32">>>();
  const sum = heed.learnedPosition(rows, tensor);
  assertType<Equal<typeof sum, Tensor<"float32">>>();
  const bucket: number = heed.t5Bucket(-3, { direction: "causal", maxDistance: 64 });
  void bucket;
}
