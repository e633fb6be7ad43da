// Ranks and layouts of mechanisms that do not have all of q, k and v: the output is that of the same
// numbers as [batch, heads, length, dimension], and nothing is ignored.
import { expect, test } from "vitest";
import { load } from "../../dist/node_gradients.js";
import { randomData } from "./support.js";

const heed = await load({ threads: 1 });

type Packed = ReturnType<typeof randomData>;

/** [batch, length, heads, dim] from [batch, heads, length, dim], or back. */
function swap({ data, shape }: { data: ArrayLike<number>; shape: readonly number[] }) {
  const [batch = 0, a = 0, b = 0, dim = 0] = shape;
  const to = new Float32Array(data.length);
  for (let n = 0; n < data.length; n++) {
    const d = n % dim;
    const row = (n - d) / dim;
    const [j, i, entry] = [row % b, Math.floor(row / b) % a, Math.floor(row / (a * b))];
    to[((entry * b + j) * a + i) * dim + d] = data[n] as number;
  }
  return { data: to, shape: [batch, b, a, dim] };
}

const heads = (seed: number, length = 6): Packed => randomData([2, 2, length, 4], seed);
const gates = () => {
  const { data, shape } = heads(7);
  return { data: data.map((x) => -Math.abs(x)), shape };
};

/** What a call takes beside its queries, keys and values. */
const CALLS: readonly [string, Record<string, Packed>, () => Record<string, unknown>][] = [
  ["reformer", { q: heads(1), v: heads(2) }, () => ({})],
  ["hgrn2", { q: heads(1), v: heads(2) }, () => ({ channelLogDecay: gates() })],
  [
    "luong_location",
    { q: heads(1), v: heads(2, 5) },
    () => ({ locationWeight: randomData([2, 5, 4], 3) }),
  ],
  [
    "external",
    { q: heads(1) },
    () => ({ memoryK: randomData([2, 5, 4], 3), memoryV: randomData([2, 5, 4], 4) }),
  ],
  ["synthesizer", { v: heads(2) }, () => ({ syntheticScores: randomData([2, 6, 6], 3) })],
  [
    "attention_pooling",
    { k: heads(1, 5), v: heads(2, 5) },
    () => ({ queries: randomData([2, 3, 4], 3) }),
  ],
];

test.each(CALLS)("layout blhd of %s is that of its tensors", (id, rows, others) => {
  const swapped = Object.fromEntries(Object.entries(rows).map(([name, x]) => [name, swap(x)]));
  const { output } = heed.run(id, { ...rows, ...others() });
  const params = { layout: "blhd" } as const;
  const given = { ...swapped, ...others() };
  const other = heed.run(id, given, params).output;
  expect(swap(other).data).toEqual(output.data);
  expect(other.shape).toEqual(swap(output).shape);
  expect(heed.run.vjp(id, given, params).output.data).toEqual(other.data);
});

test("the oracle knows the layout too", async () => {
  const full = await (await import("../../dist/node.js")).load({ threads: 1 });
  const [q, v] = [heads(1), heads(2)];
  const { output } = await full.reference("reformer", { q, v });
  const other = await full.reference("reformer", { q: swap(q), v: swap(v) }, { layout: "blhd" });
  expect(swap(other.output).data).toEqual(Float32Array.from(output.data));
});

test("rank 2 and 3 are taken without keys, as with them", () => {
  const [q, v] = [randomData([6, 4], 1), randomData([6, 4], 2)];
  expect(heed.run("reformer", { q, v }).output.shape).toEqual([6, 4]);
  const four = (x: Packed) => ({ ...x, shape: [1, 1, 6, 4] });
  expect(heed.run("reformer", { q, v }).output.data).toEqual(
    heed.run("reformer", { q: four(q), v: four(v) }).output.data,
  );
  const three = { data: q.data, shape: [1, 6, 4] };
  expect(heed.run("reformer", { q: three, v: { ...v, shape: [1, 6, 4] } }).output.shape).toEqual([
    1, 6, 4,
  ]);
});

test("queries and values that do not fit are named", () => {
  const q = heads(1);
  const refused = (inputs: Record<string, unknown>) => () => heed.run("reformer", inputs);
  expect(refused({ q, v: randomData([1, 2, 6, 4], 2) })).toThrow(/v: batch is 1 .* expected 2/);
  expect(refused({ q, v: randomData([6, 4], 2) })).toThrow(/v: got rank 2/);
});

test("a layout that nothing reads is refused", () => {
  const signal = randomData([1, 6, 4], 1);
  const convWeight = randomData([4, 3], 2);
  for (const layout of ["bhld", "blhd"] as const) {
    expect(() => heed.run("causal_conv", { signal, convWeight }, { layout })).toThrow(
      /layout: causal_conv has no input that it is read for/,
    );
  }
});
