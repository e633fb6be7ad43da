// Disentangled attention over one sentence: three products and the span beyond which distances are one.
import { floats } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { DIM, learned, NOTHING, type Problem, QKV, zeros } from "../transformer_xl/terms.js";

export const SPAN = { resting: 4, most: 12 } as const;
const SIZE = 1.2;
const ROWS = 2 * SPAN.most;
const [KEYS, QUERIES] = [
  learned("distances of keys", ROWS, SIZE),
  learned("distances of queries", ROWS, SIZE),
];

/** The rows from -span to span - 1 of the longest table. */
function middle(all: ExampleTensor, span: number): ExampleTensor {
  const first = (SPAN.most - span) * DIM;
  const rows = all.data.slice(first, first + 2 * span * DIM);
  return floats(rows as Float32Array, [2 * span, DIM]);
}

export function parts(span: number): Problem {
  const relativeKeys = middle(KEYS, span);
  const relativeQueries = middle(QUERIES, span);
  const none = zeros(...relativeKeys.shape);
  const { q, k, v } = QKV;
  return {
    id: "disentangled",
    params: { relativeRows: "span" },
    inputs: { q, k, v, relativeKeys, relativeQueries },
    terms: [
      {
        symbol: "q·k",
        tone: "ink",
        inputs: { q, k, v, relativeKeys: none, relativeQueries: none },
      },
      {
        symbol: "q·kʳ",
        tone: "query",
        inputs: { q, k: NOTHING, v, relativeKeys, relativeQueries: none },
      },
      {
        symbol: "k·qʳ",
        tone: "key",
        inputs: { q: NOTHING, k, v, relativeKeys: none, relativeQueries },
      },
    ],
  };
}
