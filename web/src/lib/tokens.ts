// A sentence becomes tokens: words (with inner apostrophes and hyphens), numbers, whole emoji, single marks.
// What has no sign of its own (joiners, variation selectors, controls) is never a token.

/** Longer sentences are cut here so that a cell stays large enough to see and to touch. */
export const MAX_TOKENS = 40;

/** A letter and what belongs to it; joiners shape letters in some scripts. */
const LETTERS = String.raw`(?!\p{DI})\p{L}[\p{L}\p{M}\u200c\u200d]*`;
const WORD = `${LETTERS}(?:['’-]${LETTERS})*`;
/** A picture, its colour or skin, and tags, as those of the flag of Wales. */
const PICTURE = String.raw`\p{Extended_Pictographic}(?:\ufe0f|\p{Emoji_Modifier})?\u20e3?[\u{e0020}-\u{e007f}]*`;
const EMOJI = String.raw`\p{RI}{2}|[#*0-9]\ufe0f?\u20e3|${PICTURE}(?:\u200d${PICTURE})*`;
const MARK = String.raw`[^\s\p{DI}\p{Cc}\p{Cf}\p{Cs}\p{M}]\p{M}*`;
const TOKEN = new RegExp(`${EMOJI}|${WORD}|\\p{N}+|${MARK}`, "gu");

export interface Tokenised {
  tokens: string[];
  /** Tokens left out because the sentence is longer than MAX_TOKENS. */
  dropped: number;
}

export function tokenise(sentence: string): Tokenised {
  const all = sentence.normalize("NFC").match(TOKEN) ?? [];
  return { tokens: all.slice(0, MAX_TOKENS), dropped: Math.max(0, all.length - MAX_TOKENS) };
}
