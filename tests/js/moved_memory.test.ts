// Elements that lie in the instance's own memory, or go away, while a call takes its arguments.
import { type Heed, load } from "heed";
import { beforeEach, describe, expect, it } from "vitest";
import { expectError, expectRejection, randomData } from "./support.js";

let heed: Heed;
// An instance that is small still: its memory grows, and detaches every view, when much is copied in.
beforeEach(async () => {
  heed = await load({ threads: 1 });
});

/** More than fits into the memory of a new instance. */
const rows = 2_000_000;
const large = () => ({ data: new Float32Array(8 * rows).fill(1), shape: [rows, 8] });

describe("views of heed's own memory", () => {
  it("are read where they lie after the memory has grown", () => {
    const weights = heed.tensor(
      Float32Array.from({ length: 64 }, (_, i) => Math.cos(i)),
      [8, 8],
    );
    const bias = heed.tensor(new Float32Array(8).fill(5), [8]);
    const before = heed.memory().heapBytes;
    const { data } = heed.linear(large(), { data: weights.data, shape: [8, 8] });
    expect(heed.memory().heapBytes).toBeGreaterThan(before);
    const row = heed.linear({ data: new Float32Array(8).fill(1), shape: [1, 8] }, weights);
    for (const at of [0, rows - 1]) {
      expect(data.slice(8 * at, 8 * at + 8)).toEqual(row.data.slice());
    }
    const normed = heed.layerNorm(large(), { bias: { data: bias.data, shape: [8] } });
    expect(normed.data[8 * rows - 1]).toBe(5);
  });

  it("become tensors", () => {
    const tensor = heed.tensor(new Float32Array(8 * rows).fill(3), [8 * rows]);
    const copy = heed.tensor(tensor.data, [rows, 8]);
    expect([copy.data[0], copy.data[8 * rows - 1]]).toEqual([3, 3]);
  });

  it("of 16 bits are read as what they are", () => {
    const one = { data: new Uint16Array(8).fill(0x3f80), shape: [1, 8], dtype: "bfloat16" };
    const k = heed.tensor(one);
    const q = { ...one, data: new Uint16Array(8 * rows), shape: [rows, 8] };
    const { output } = heed.attention(q, { ...one, data: k.data }, one);
    expect(output.data[8 * rows - 1]).toBe(0x3f80);
  });
});

describe("elements that go away", () => {
  it("after the oracle was asked do not matter", async () => {
    const keys = randomData([3, 2], 1);
    const v = randomData([3, 2], 2);
    const q = { data: Float32Array.of(1, 2), shape: [1, 2] };
    const inputs = { q, k: keys, v };
    const wanted = await heed.reference("scaled_dot_product", inputs);
    const asked = heed.reference("scaled_dot_product", inputs);
    structuredClone(q.data.buffer, { transfer: [q.data.buffer] });
    expect((await asked).output.data).toEqual(wanted.output.data);
  });

  // q is read before k, and copied after.
  const k = randomData([3, 2], 1);
  const keysThat = (act: () => void) => ({
    shape: k.shape,
    get data() {
      act();
      return k.data;
    },
  });

  it("while arguments are read are missed", () => {
    const data = Float32Array.of(1, 2, 3, 4);
    const keys = keysThat(() => structuredClone(data.buffer, { transfer: [data.buffer] }));
    expectError("disposed", ["q"], () => heed.attention({ data, shape: [2, 2] }, keys, k));
  });

  it("in part are missed as well", () => {
    const resizable = ArrayBuffer as unknown as new (
      bytes: number,
      options: { maxByteLength: number },
    ) => ArrayBuffer & { resize(bytes: number): void };
    const buffer = new resizable(16, { maxByteLength: 16 });
    const data = new Float32Array(buffer);
    const keys = keysThat(() => buffer.resize(8));
    expectError("disposed", ["q", "2 elements now", "4 when"], () =>
      heed.attention({ data, shape: [2, 2] }, keys, k),
    );
  });

  it("before a file is read are refused", async () => {
    const wasmBinary = new ArrayBuffer(8);
    structuredClone(wasmBinary, { transfer: [wasmBinary] });
    await expectRejection("disposed", ["wasmBinary"], () => load({ wasmBinary }));
  });
});
