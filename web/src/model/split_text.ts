// How text falls into words before pairs are joined. Patterns come in files as regular expressions; those
// of strangers are never run: the known ones are recognised by their spelling and written here once more.

export type Split = (text: string) => readonly string[];

/** \s and \S of the files' engine; JavaScript's \s has another set. */
const S = "\\p{White_Space}";
const NOT_S = "\\P{White_Space}";
/** Oniguruma takes the long s for an s too. */
const CONTRACTIONS = "'(?:[sSſ]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])";

const GPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${S}\\p{L}\\p{N}]+|${S}+(?!${NOT_S})|${S}+`;

/** Of Llama 3 and Qwen 2, which differ in how many digits stay together. */
const words = (digits: string) =>
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}${digits}| ?[^${S}\\p{L}\\p{N}]+[\\r\\n]*|${S}*[\\r\\n]+|${S}+(?!${NOT_S})|${S}+`;

/** As the files spell them. */
const KNOWN: ReadonlyMap<string, string> = new Map([
  ["'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", GPT2],
  [
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    words("{1,3}"),
  ],
  [
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    words(""),
  ],
]);

/** Matches and what is between them, in their order. */
function isolated(pattern: string): Split {
  const expression = new RegExp(pattern, "gu");
  return (text) => {
    const parts: string[] = [];
    let at = 0;
    for (const { 0: match, index } of text.matchAll(expression)) {
      if (index > at) parts.push(text.slice(at, index));
      parts.push(match);
      at = index + match.length;
    }
    if (at < text.length) parts.push(text.slice(at));
    return parts;
  };
}

export const splitGpt2: Split = isolated(GPT2);

/** Each digit alone. */
export const splitDigits: Split = isolated("\\p{N}");

/** Before each "▁". */
export const splitMetaspace: Split = isolated("▁[^▁]*");

/** The split that a file's expression means; null for one that is not known. */
export function knownSplit(expression: string): Split | null {
  const pattern = KNOWN.get(expression);
  return pattern === undefined ? null : isolated(pattern);
}
