// A classifier of two topics and four ways to pool its tokens; weights are made by hand.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";

/** How much a word says of fishing and of music; those that are not here say nothing. */
const SAYS: Readonly<Record<string, readonly [number, number]>> = {
  bass: [0.6, 0.6],
  river: [1, 0],
  caught: [1, 0],
  guitar: [0, 1],
  played: [0, 1],
};
export const SENTENCES: readonly (readonly string[])[] = [
  ["she", "played", "bass", "and", "guitar"],
  ["she", "caught", "a", "bass", "there"],
  ["it", "was", "a", "bass", "again"],
];
/** Said again and again, and about nothing. */
const FILLERS = ["well", "you", "know", "so", "it", "was"];
export const MOST_FILLERS = 24;
export const MOST_WORDS = Math.max(...SENTENCES.map(({ length }) => length)) + MOST_FILLERS;
export const CLASSES = 2;

const VOCABULARY = [...new Set([...SENTENCES.flat(), ...FILLERS])];
/** Two topics, and what a word has of its own. */
const OWN = 6;
export const DIM = 2 + OWN;
export const embeddingOf = (word: string): number[] => {
  const normal = normalSource(hashText(`classified ${word}`));
  return [...(SAYS[word] ?? [0, 0]), ...Array.from({ length: OWN }, () => 0.3 * normal())];
};

export const POOLINGS = ["attention", "mean", "max", "first"] as const;
export type Pooling = (typeof POOLINGS)[number];

/** Queries and keys are the topics alone, and sharp; values are whole rows. */
export const SHARPNESS = 4;
export const POOL_QUERY: readonly number[] = [6, 6, ...Array.from({ length: OWN }, () => 0)];
/** A class's score is its topic's number times this. */
export const CLASS_SIZE = 4;
const square = (entry: (row: number, column: number) => number): number[] =>
  Array.from({ length: DIM * DIM }, (_, at) => entry(Math.floor(at / DIM), at % DIM));
const topicsOnly = (size: number) =>
  square((row, column) => (row === column && row < 2 ? size : 0));
const identity = square((row, column) => Number(row === column));

const [W_Q, W_K] = [
  floats(topicsOnly(SHARPNESS), [1, DIM, DIM]),
  floats(topicsOnly(1), [1, DIM, DIM]),
];
const [W_V, W_O] = [floats(identity, [1, DIM, DIM]), floats(identity, [DIM, 1, DIM])];
const W_CLASS = floats(
  Array.from({ length: CLASSES * DIM }, (_, at) =>
    Math.floor(at / DIM) === at % DIM ? CLASS_SIZE : 0,
  ),
  [CLASSES, DIM],
);
const EMBEDDING = floats(VOCABULARY.flatMap(embeddingOf), [VOCABULARY.length, DIM]);
const PARAMS = { scale: 1 };

export const textOf = (sentence: number, fillers: number): string[] => [
  ...(SENTENCES[sentence] ?? []),
  ...Array.from({ length: fillers }, (_, at) => FILLERS[at % FILLERS.length] as string),
];

function classify(heed: Heed, text: readonly string[], pooling: Pooling): Called {
  const tokens: ExampleTensor = {
    data: Int32Array.from(text, (word) => VOCABULARY.indexOf(word)),
    shape: [1, text.length],
  };
  const inputs = {
    tokens,
    embedding: EMBEDDING,
    wQ: W_Q,
    wK: W_K,
    wV: W_V,
    wO: W_O,
    wClass: W_CLASS,
    ...(pooling === "attention" && { poolQuery: floats(POOL_QUERY, [DIM]) }),
  };
  return make(heed, { id: "attention_classifier", inputs, params: { ...PARAMS, pooling } });
}

/** The softmax of two scores: how likely the text is about music. */
export const musicOf = (scores: ArrayLike<number>): number =>
  1 / (1 + Math.exp((scores[0] as number) - (scores[1] as number)));

export interface Classified {
  called: Called;
  text: readonly string[];
  /** [text, text] of the attention between tokens. */
  weights: Float32Array;
  /** [text]: what counts in the pooled row; null for the maximum, whose entries come from several tokens. */
  pooled: readonly number[] | null;
  music: number;
}

export function classified(
  heed: Heed,
  sentence: number,
  fillers: number,
  pooling: Pooling,
): Classified {
  const text = textOf(sentence, fillers);
  const called = classify(heed, text, pooling);
  const x = floats(text.flatMap(embeddingOf), [1, text.length, DIM]);
  const inputs = { query: x, key: x, value: x, wQ: W_Q, wK: W_K, wV: W_V };
  const { output, weights } = heed.run("multi_head", inputs, { ...PARAMS, returnWeights: true });
  return {
    called,
    text,
    weights: weights?.data as Float32Array,
    pooled: pooledWeights(heed, output.data as Float32Array, pooling),
    music: musicOf(resultOf(called, "output").data),
  };
}

function pooledWeights(heed: Heed, rows: Float32Array, pooling: Pooling): readonly number[] | null {
  const count = rows.length / DIM;
  if (pooling === "max") return null;
  if (pooling === "first") return Array.from({ length: count }, (_, at) => Number(at === 0));
  if (pooling === "mean") return Array.from({ length: count }, () => 1 / count);
  const k = floats(rows, [1, 1, count, DIM]);
  const queries = floats(POOL_QUERY, [1, 1, DIM]);
  const asked = { ...PARAMS, returnWeights: true };
  const inputs = { queries, k, v: k };
  const called = make(heed, { id: "attention_pooling", inputs, params: asked });
  return [...resultOf(called, "weights").data];
}

/** How likely music is for each number of fillers, from 0. */
export const drowned = (heed: Heed, sentence: number, pooling: Pooling): number[] =>
  Array.from({ length: MOST_FILLERS + 1 }, (_, fillers) =>
    musicOf(resultOf(classify(heed, textOf(sentence, fillers), pooling), "output").data),
  );
