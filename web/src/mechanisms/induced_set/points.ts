// A set that reads itself through a few points, and the weights of all members that this stands for.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { DIM, K, Q, TOKENS } from "../block_mixture/text.js";
import { type Ranked, segmentMeans } from "../linformer/ranked.js";

/** A row is what a member asks, what it offers, and which one it is: unit vectors, so that sums are weights. */
const WIDTH = 2 * DIM + TOKENS;

const rowOf = (all: ArrayLike<number>, at: number): number[] =>
  Array.from({ length: DIM }, (_, d) => all[at * DIM + d] as number);
const unit = (at: number): number[] =>
  Array.from({ length: TOKENS }, (_, other) => Number(other === at));
const MEMBERS = floats(
  Array.from({ length: TOKENS }, (_, i) => [
    ...rowOf(Q.data, i),
    ...rowOf(K.data, i),
    ...unit(i),
  ]).flat(),
  [1, TOKENS, WIDTH],
);

/** Asks as the mean of some members does, offers `offer` times as much, and is no member. */
function pointsOf(count: number, offer: number): ExampleTensor {
  const parts = segmentMeans(count);
  const nobody = Array.from({ length: TOKENS }, () => 0);
  const rows = Array.from({ length: count }, (_, m) => {
    const mean = (all: ArrayLike<number>, size: number) =>
      Array.from({ length: DIM }, (_, d) => {
        let sum = 0;
        for (let i = 0; i < TOKENS; i++)
          sum += (parts[m * TOKENS + i] as number) * (all[i * DIM + d] as number);
        return size * sum;
      });
    return [...mean(Q.data, 1), ...mean(K.data, offer), ...nobody];
  });
  return floats(rows.flat(), [count, WIDTH]);
}

/** Queries and keys pick what is asked and offered, values and outputs which one it is; no feed-forward network. */
function weightsOf(blocks: number): ExampleTensor {
  const pick = (from: number, to: number, count: number) => {
    const matrix = new Float32Array(WIDTH * WIDTH);
    for (let d = 0; d < count; d++) matrix[(to + d) * WIDTH + from + d] = 1;
    return [...matrix];
  };
  const which = pick(2 * DIM, 2 * DIM, TOKENS);
  const nothing = [...new Float32Array(WIDTH * WIDTH)];
  const block = [...pick(0, 0, DIM), ...pick(DIM, 0, DIM), ...which, ...which, ...nothing];
  return floats(Array.from({ length: blocks }, () => block).flat(), [blocks, 5, WIDTH, WIDTH]);
}
const ONE_BLOCK = weightsOf(1);
const TWO_BLOCKS = weightsOf(2);
const PARAMS = { setNorm: "none", scale: 1 / Math.sqrt(DIM) };

/** What stands behind the first numbers of every row. */
const whichOf = (called: Called): Float32Array => {
  const { data } = resultOf(called, "output");
  return Float32Array.from({ length: (data.length / WIDTH) * TOKENS }, (_, at) => {
    const [row, other] = [Math.floor(at / TOKENS), at % TOKENS];
    return data[row * WIDTH + 2 * DIM + other] as number;
  });
};

export const RESTING = { count: 8, offer: 2 };

export function inducedSet(offer: number): Ranked {
  return {
    sizes: [1, 2, 4, 6, 8, 12, 16, 24, 32],
    keys: (count) => count,
    call: (heed: Heed, count) =>
      make(heed, {
        id: "induced_set",
        inputs: { x: MEMBERS, inducing: pointsOf(count, offer), setWeights: TWO_BLOCKS },
        params: { ...PARAMS, setBlock: "isab" },
      }),
    // Each member adds itself to what it has read.
    weights: (called) =>
      whichOf(called).map((value, at) => value - Number(Math.floor(at / TOKENS) === at % TOKENS)),
    parts: (heed, count) =>
      whichOf(
        make(heed, {
          id: "induced_set",
          inputs: { x: MEMBERS, inducing: pointsOf(count, offer), setWeights: ONE_BLOCK },
          params: { ...PARAMS, setBlock: "pma" },
        }),
      ),
  };
}
