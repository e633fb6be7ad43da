// A sentence becomes tokens: words (with inner apostrophes and hyphens), numbers, single marks.

/** Longer sentences are cut here so that a cell stays large enough to see and to touch. */
export const MAX_TOKENS = 40;

const TOKEN = /\p{L}[\p{L}\p{M}]*(?:['’-]\p{L}[\p{L}\p{M}]*)*|\p{N}+|[^\s]/gu;

export interface Tokenised {
  tokens: string[];
  /** Tokens left out because the sentence is longer than MAX_TOKENS. */
  dropped: number;
}

export function tokenise(sentence: string): Tokenised {
  const all = sentence.normalize("NFC").match(TOKEN) ?? [];
  return { tokens: all.slice(0, MAX_TOKENS), dropped: Math.max(0, all.length - MAX_TOKENS) };
}
