// The score of a query and a key that are one number each, over a grid of both: the surface that a
// small network makes, and the one of a dot product.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";

export const GRID: readonly number[] = Array.from({ length: 33 }, (_, at) => (at - 16) / 4);
export const COUNT = GRID.length;

export interface Network {
  queryWeight: number;
  keyWeight: number;
  bias: number;
  vector: number;
  /** One hidden unit, or two that make a ridge: the second has the opposite bias and sign. */
  units: 1 | 2;
}

export const START: Network = { queryWeight: 1, keyWeight: -1, bias: 0, vector: 3, units: 1 };

const column = () => floats(GRID, [1, 1, COUNT, 1]);

function inputsOf({ queryWeight, keyWeight, bias, vector, units }: Network) {
  const hidden = (values: number[]) => values.slice(0, units);
  return {
    q: column(),
    k: column(),
    v: column(),
    queryWeight: floats(hidden([queryWeight, queryWeight]), [units, 1]),
    keyWeight: floats(hidden([keyWeight, keyWeight]), [units, 1]),
    scoreBias: floats(hidden([bias, -bias]), [units]),
    scoreVector: floats(hidden([vector, -vector]), [units]),
  };
}

export interface Surface {
  called: Called;
  /** [queries, keys] */
  scores: Float32Array;
  weights: Float32Array;
  dot: Float32Array;
}

export function surface(heed: Heed, network: Network): Surface {
  const inputs = inputsOf(network);
  const params = { scale: 1, returnWeights: true, returnScores: "raw" };
  const called = make(heed, { id: "additive", inputs, params });
  const { q, k, v } = inputs;
  const dot = heed.run("luong_dot", { q, k, v }, { returnScores: "raw" });
  return {
    called,
    scores: called.results.scores?.data as Float32Array,
    weights: called.results.weights?.data as Float32Array,
    dot: dot.scores?.data as Float32Array,
  };
}
