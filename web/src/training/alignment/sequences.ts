// The tasks: a word of different letters, written backwards or in the order of the alphabet.
import type { TrainBatch } from "heed/training";

export type Order = "reverse" | "sort";

export const LETTERS = "abcdefghijklmnopqrstuvwxyz";
/** Letters of a word. */
export const LEN = 10;
/** What stands before the first letter that is written. */
export const START = LETTERS.length;
export const VOCABULARY = LETTERS.length + 1;

/** Words, one after the other: letters to read, letters before the one to write, letters to write. */
export interface Words extends TrainBatch {
  batch: number;
  source: Int32Array;
  tokens: Int32Array;
  targets: Int32Array;
}

/** Different letters at random. */
function drawWord(next: () => number): number[] {
  const letters = Array.from(LETTERS, (_, letter) => letter);
  for (let i = 0; i < LEN; i++) {
    const j = i + Math.floor(next() * (letters.length - i));
    [letters[i], letters[j]] = [letters[j] as number, letters[i] as number];
  }
  return letters.slice(0, LEN);
}

const inOrder = (word: readonly number[], order: Order): number[] =>
  order === "reverse" ? word.toReversed() : word.toSorted((a, b) => a - b);

export function drawWords(batch: number, order: Order, next: () => number): Words {
  const source = new Int32Array(batch * LEN);
  const tokens = new Int32Array(batch * LEN).fill(START);
  const targets = new Int32Array(batch * LEN);
  for (let b = 0; b < batch; b++) {
    const word = drawWord(next);
    const written = inOrder(word, order);
    source.set(word, b * LEN);
    targets.set(written, b * LEN);
    tokens.set(written.slice(0, -1), b * LEN + 1);
  }
  return { batch, source, tokens, targets };
}
