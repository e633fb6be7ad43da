// Relative position representations over one sentence: a learned vector for each distance up to a limit.

import { floats } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { DIM, learned, NOTHING, type Problem, QKV, zeros } from "../transformer_xl/terms.js";

export const LIMIT = { resting: 4, most: 12 } as const;
const SIZE = 1.3;
const ALL = learned("relative keys", 2 * LIMIT.most + 1, SIZE);

/** The rows from -limit to limit of the longest table: a shorter one keeps what it has. */
function tableUpTo(limit: number): ExampleTensor {
  const first = (LIMIT.most - limit) * DIM;
  const rows = 2 * limit + 1;
  return floats((ALL.data as Float32Array).subarray(first, first + rows * DIM), [rows, DIM]);
}

export function parts(limit: number): Problem {
  const relativeKeys = tableUpTo(limit);
  const { q, k, v } = QKV;
  return {
    id: "shaw_relative",
    params: {},
    inputs: { q, k, v, relativeKeys },
    terms: [
      {
        symbol: "q·k",
        tone: "ink",
        inputs: { q, k, v, relativeKeys: zeros(...relativeKeys.shape) },
      },
      { symbol: "q·a", tone: "query", inputs: { q, k: NOTHING, v, relativeKeys } },
    ],
  };
}
