// Positions that are counted by what words are: the gates of one word open, those of the others do not, and
// a table of logits likes one count. Two dimensions of q and k carry this; the others are the words' own.
import type { Heed } from "heed";
import { floats, make, resultOf } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { COUNT, DIM, K, Q, type Terms, WORDS, words } from "../transformer_xl/terms.js";

export interface Counting {
  word: string;
  /** Which of them is looked for, counted back from the query. */
  which: number;
  /** Score of the counted word, and minus that of the others. */
  openness: number;
}
export const COUNTED = ["the", "cat"] as const;
export const RESTING: Counting = { word: "the", which: 2, openness: 4 };
export const WIDTH = DIM + 2;
const LIKING = 6;
/** Of what the words are beside that: small, so that counting is seen. */
const OWN = 0.25;
const POSITIONS = COUNT + 1;

const own = (all: ArrayLike<number>, at: number): number[] =>
  Array.from({ length: DIM }, (_, d) => OWN * (all[at * DIM + d] as number));

/** The last two dimensions: the gate, and the taste for a count. */
function queries(): number[] {
  return WORDS.flatMap((_, at) => [...own(Q, at), Math.sqrt(WIDTH), 1]);
}
function keys({ word, openness }: Counting): number[] {
  return WORDS.flatMap((other, at) => [...own(K, at), other === word ? openness : -openness, 0]);
}

function tableOf(which: number): ExampleTensor {
  const rows = Array.from({ length: POSITIONS }, (_, position) =>
    Array.from({ length: WIDTH }, (_, d) => (d === WIDTH - 1 && position === which ? LIKING : 0)),
  );
  return floats(rows.flat(), [POSITIONS, WIDTH]);
}

type Vectors = Readonly<Record<"q" | "k" | "v", ExampleTensor>>;

/** [COUNT, COUNT]: the sum of the gates from a key to the query. Gates are sigmoid attention's weights. */
function positionsOf(heed: Heed, vectors: Vectors): Float32Array {
  const params = { causal: true, sigmoidBias: 0, returnWeights: true };
  const gates = heed.run("sigmoid", vectors, params).weights?.data as Float32Array;
  const positions = new Float32Array(COUNT * COUNT);
  for (let i = 0; i < COUNT; i++) {
    let sum = 0;
    for (let j = i; j >= 0; j--) {
      sum += gates[i * COUNT + j] as number;
      positions[i * COUNT + j] = sum;
    }
  }
  return positions;
}

export interface Counted extends Terms {
  positions: Float32Array;
}

export function counted(heed: Heed, chosen: Counting): Counted {
  const q = words(queries(), WIDTH);
  const vectors = { q, k: words(keys(chosen), WIDTH), v: q };
  const inputs = { ...vectors, copeTable: tableOf(chosen.which) };
  const asked = { returnWeights: true, returnScores: "biased", returnLse: true };
  const called = make(heed, { id: "cope", inputs, params: { causal: true, ...asked } });
  const dot = resultOf(called, "scores").data;
  const weights = resultOf(called, "weights").data;
  const lse = resultOf(called, "lse").data;
  // The logits of positions join within the softmax: a weight is exp(sum - lse).
  const scores = weights.map((weight, at) =>
    dot[at] === -Infinity ? -Infinity : Math.log(weight) + (lse[Math.floor(at / COUNT)] as number),
  );
  const logits = scores.map((score, at) =>
    score === -Infinity ? -Infinity : score - (dot[at] as number),
  );
  return {
    called,
    terms: [
      { symbol: "q·k / √d", tone: "ink", scores: dot },
      { symbol: "q·e[p]", tone: "query", scores: logits },
    ],
    scores,
    weights,
    positions: positionsOf(heed, vectors),
  };
}
