// A recurrent sentence read in chunks: inside a chunk as one masked product, between chunks through the
// state.
import type { Heed } from "heed";
import { floats } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { COUNT, DIM, K, Q } from "../linear/state.js";

export interface Chunked {
  /** [COUNT, COUNT], how much of the value of token j is in the output of token i, by its way. */
  inside: Float32Array;
  through: Float32Array;
  /** All at once. */
  whole: Float32Array;
}

/** Values that are unit vectors: outputs are then rows of weights. */
function unit(from: number, count: number): Float32Array {
  const rows = new Float32Array(count * COUNT);
  for (let i = 0; i < count; i++) rows[i * COUNT + from + i] = 1;
  return rows;
}

export function inChunks(
  heed: Heed,
  chunk: number,
  extra: Readonly<Record<string, ExampleTensor>>,
): Chunked {
  const slice = (data: Float32Array, from: number, count: number) =>
    floats(data.slice(from * DIM, (from + count) * DIM), [1, 1, count, DIM]);
  const inputs = (from: number, count: number, v: Float32Array) => ({
    q: slice(Q, from, count),
    k: slice(K, from, count),
    v: floats(v, [1, 1, count, COUNT]),
    ...extra,
  });
  const run = (given: Record<string, ExampleTensor>) =>
    heed.run("retention", given, { returnState: true });
  const inside = new Float32Array(COUNT * COUNT);
  const through = new Float32Array(COUNT * COUNT);
  let state: ExampleTensor = floats(new Float32Array(DIM * COUNT), [1, 1, DIM, COUNT]);
  for (let from = 0; from < COUNT; from += chunk) {
    const count = Math.min(chunk, COUNT - from);
    const own = inputs(from, count, unit(from, count));
    inside.set(run(own).output.data as Float32Array, from * COUNT);
    const silent = inputs(from, count, new Float32Array(count * COUNT));
    const remembered = run({ ...silent, initialState: state }).output.data as Float32Array;
    through.set(remembered, from * COUNT);
    const next = run({ ...own, initialState: state }).state?.data as Float32Array;
    state = floats(next, [1, 1, DIM, COUNT]);
  }
  const whole = run(inputs(0, COUNT, unit(0, COUNT))).output.data as Float32Array;
  return { inside, through, whole };
}
