// tokenizer.json files that tests make: byte-pair merges learned from a text, by counting.

/** GPT-2's letters of bytes, written down a second time. */
export function letterOf(byte: number): string {
  const printable: number[] = [];
  for (const [from, to] of [
    [33, 126],
    [161, 172],
    [174, 255],
  ] as const)
    for (let code = from; code <= to; code++) printable.push(code);
  if (printable.includes(byte)) return String.fromCharCode(byte);
  const others = Array.from({ length: 256 }, (_, code) => code).filter(
    (c) => !printable.includes(c),
  );
  return String.fromCharCode(256 + others.indexOf(byte));
}

const LETTERS = Array.from({ length: 256 }, (_, byte) => letterOf(byte));

export const lettersOf = (text: string): string[] =>
  Array.from(new TextEncoder().encode(text), (byte) => LETTERS[byte] as string);

function joined(word: string[], left: string, right: string): string[] {
  const out: string[] = [];
  for (const symbol of word) {
    if (out.at(-1) === left && symbol === right) out[out.length - 1] = left + right;
    else out.push(symbol);
  }
  return out;
}

/** The most frequent pair of neighbours, again and again. */
export function learnMerges(words: string[][], count: number): [string, string][] {
  const merges: [string, string][] = [];
  let all = words;
  while (merges.length < count) {
    const counts = new Map<string, number>();
    for (const word of all)
      for (let at = 0; at + 1 < word.length; at++) {
        const pair = JSON.stringify([word[at], word[at + 1]]);
        counts.set(pair, (counts.get(pair) ?? 0) + 1);
      }
    const [best] = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    if (best === undefined) break;
    const [left, right] = JSON.parse(best[0]) as [string, string];
    merges.push([left, right]);
    all = all.map((word) => joined(word, left, right));
  }
  return merges;
}

/** The first pair that was learned, leftmost first, until none is left: slowly. */
export function mergeSlowly(word: string[], merges: [string, string][]): string[] {
  const symbols = [...word];
  for (;;) {
    let best: { rank: number; at: number } | undefined;
    for (let at = 0; at + 1 < symbols.length; at++) {
      const rank = merges.findIndex(([a, b]) => a === symbols[at] && b === symbols[at + 1]);
      if (rank >= 0 && (best === undefined || rank < best.rank)) best = { rank, at };
    }
    if (best === undefined) return symbols;
    symbols.splice(best.at, 2, (symbols[best.at] as string) + (symbols[best.at + 1] as string));
  }
}

export interface TokenizerJson {
  [key: string]: unknown;
  added_tokens: object[];
  model: { [key: string]: unknown; vocab: Record<string, number>; merges: unknown[] };
}

export function vocabularyOf(first: string[], merges: [string, string][]): Record<string, number> {
  const tokens = new Set([...first, ...merges.map(([left, right]) => left + right)]);
  return Object.fromEntries([...tokens].map((token, id) => [token, id]));
}

export const addedToken = (id: number, content: string, more: object = {}): object => ({
  id,
  content,
  single_word: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
  special: true,
  ...more,
});

/** As GPT-2's. */
export function byteTokenizer(merges: [string, string][], more: object = {}): TokenizerJson {
  const vocab = vocabularyOf(LETTERS, merges);
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: [addedToken(Object.keys(vocab).length, "<|endoftext|>")],
    normalizer: null,
    pre_tokenizer: {
      type: "ByteLevel",
      add_prefix_space: false,
      trim_offsets: true,
      use_regex: true,
    },
    post_processor: { type: "ByteLevel", add_prefix_space: true, trim_offsets: false },
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: "",
      end_of_word_suffix: "",
      fuse_unk: false,
      vocab,
      merges: merges.map((pair) => pair.join(" ")),
    },
    ...more,
  };
}

/** As Llama 2's: letters, "▁" for spaces, tokens of bytes, a beginning of the text. */
export function letterTokenizer(
  letters: string[],
  merges: [string, string][],
  more: object = {},
): TokenizerJson {
  const bytes = Array.from(
    { length: 256 },
    (_, byte) => `<0x${byte.toString(16).padStart(2, "0").toUpperCase()}>`,
  );
  const vocab = vocabularyOf(["<unk>", "<s>", "</s>", ...bytes, "▁", ...letters], merges);
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: [addedToken(0, "<unk>"), addedToken(1, "<s>"), addedToken(2, "</s>")],
    normalizer: {
      type: "Sequence",
      normalizers: [
        { type: "Prepend", prepend: "▁" },
        { type: "Replace", pattern: { String: " " }, content: "▁" },
      ],
    },
    pre_tokenizer: null,
    post_processor: {
      type: "TemplateProcessing",
      single: [{ SpecialToken: { id: "<s>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
      pair: [],
      special_tokens: { "<s>": { id: "<s>", ids: [1], tokens: ["<s>"] } },
    },
    decoder: { type: "Sequence", decoders: [] },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: "<unk>",
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: true,
      vocab,
      merges,
    },
    ...more,
  };
}
