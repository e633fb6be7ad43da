// The task: a run of letters, repeated to the end. From its second round on, the next letter is the one
// that followed this letter last time; the length of a round differs, so that counting back does not help.
export const LETTERS = "abcdefghijklmnop";
/** Letters of a sequence. */
export const LEN = 24;
/** A round has so many letters. */
const ROUND = { least: 5, most: 10 };

/** Sequences, one after the other; a target of -1 cannot be known and is ignored. */
export interface Sequences {
  batch: number;
  tokens: Int32Array;
  targets: Int32Array;
}

/** Letters in random order, the first `count` of them. */
function shuffled(count: number, next: () => number): number[] {
  const letters = Array.from(LETTERS, (_, letter) => letter);
  for (let i = 0; i < count; i++) {
    const j = i + Math.floor(next() * (letters.length - i));
    [letters[i], letters[j]] = [letters[j] as number, letters[i] as number];
  }
  return letters.slice(0, count);
}

export function drawSequences(batch: number, next: () => number): Sequences {
  const tokens = new Int32Array(batch * LEN);
  const targets = new Int32Array(batch * LEN);
  for (let b = 0; b < batch; b++) {
    const length = ROUND.least + Math.floor(next() * (ROUND.most - ROUND.least + 1));
    const round = shuffled(length, next);
    for (let i = 0; i < LEN; i++) {
      tokens[b * LEN + i] = round[i % length] as number;
      targets[b * LEN + i] = i + 1 < length ? -1 : (round[(i + 1) % length] as number);
    }
  }
  return { batch, tokens, targets };
}
