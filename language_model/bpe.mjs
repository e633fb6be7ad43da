// Byte-pair encoding on bytes, as GPT-2 does it (Radford et al. 2019, section 2.2; Sennrich et al.
// 2016, arXiv:1508.07909): a vocabulary learned from a text, and texts as its ids.

/** What GPT-2 splits a text into before pairs are merged; no pair crosses these borders. */
const PIECES = /'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

/** Bytes that stand for themselves in a vocabulary; the others get letters from 256 on. */
const isPrintable = (byte) =>
  (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;

/** The 256 letters with which a vocabulary spells bytes. */
export const BYTE_LETTERS = (() => {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) =>
    String.fromCodePoint(isPrintable(byte) ? byte : next++),
  );
})();

const encoder = new TextEncoder();

/** A piece of text as letters, one a byte. */
const lettersOf = (piece) => Array.from(encoder.encode(piece), (byte) => BYTE_LETTERS[byte]);

const piecesOf = (text) => text.match(PIECES) ?? [];

/** Unique pieces of texts as lists of ids, with how often they stand there. */
function countWords(texts, idOf) {
  const counts = new Map();
  for (const text of texts) {
    for (const piece of piecesOf(text)) counts.set(piece, (counts.get(piece) ?? 0) + 1);
  }
  return [...counts].map(([piece, count]) => ({
    ids: lettersOf(piece).map((letter) => idOf.get(letter)),
    count,
  }));
}

/** Every pair of a word once for each place, as one number. */
const SHIFT = 2 ** 20;

function forEachPair({ ids }, visit) {
  for (let i = 0; i + 1 < ids.length; ++i) visit(ids[i] * SHIFT + ids[i + 1]);
}

/** How often each pair of neighbours stands in the text, and in which words. */
class PairCounts {
  counts = new Map();
  places = new Map();

  constructor(words) {
    for (const word of words) this.add(word);
  }

  add(word) {
    forEachPair(word, (pair) => {
      this.counts.set(pair, (this.counts.get(pair) ?? 0) + word.count);
      const words = this.places.get(pair);
      if (words) words.add(word);
      else this.places.set(pair, new Set([word]));
    });
  }

  remove(word) {
    forEachPair(word, (pair) => {
      this.counts.set(pair, this.counts.get(pair) - word.count);
      this.places.get(pair).delete(word);
    });
  }

  /** The most frequent pair; of equals the one whose tokens were learned first. */
  best() {
    let best = null;
    let most = 0;
    for (const [pair, count] of this.counts) {
      if (count > most || (count === most && best !== null && pair < best)) {
        best = pair;
        most = count;
      }
    }
    return best;
  }

  /** Words as they are once `left right` has become `merged`. */
  merge(pair, left, right, merged) {
    for (const word of [...this.places.get(pair)]) {
      this.remove(word);
      word.ids = mergePair(word.ids, left, right, merged);
      this.add(word);
    }
    this.counts.delete(pair);
    this.places.delete(pair);
  }
}

function mergePair(ids, left, right, merged) {
  const result = [];
  for (let i = 0; i < ids.length; ++i) {
    const found = ids[i] === left && ids[i + 1] === right;
    result.push(found ? merged : ids[i]);
    if (found) ++i;
  }
  return result;
}

/**
 * Learns a vocabulary of `size` tokens: `special`, the 256 bytes, then one token for each merge of
 * the most frequent pair. It is smaller where the text has no pair left.
 * Returns { vocab: Map token -> id, merges: [[left, right], ..] }.
 */
export function learnBpe(texts, size, special) {
  const vocab = new Map([special, ...BYTE_LETTERS].map((token, id) => [token, id]));
  const tokens = [...vocab.keys()];
  const merges = [];
  const pairs = new PairCounts(countWords(texts, vocab));
  while (tokens.length < size) {
    const pair = pairs.best();
    if (pair === null) break;
    const left = Math.floor(pair / SHIFT);
    const right = pair % SHIFT;
    const merged = tokens[left] + tokens[right];
    merges.push([tokens[left], tokens[right]]);
    pairs.merge(pair, left, right, tokens.length);
    vocab.set(merged, tokens.length);
    tokens.push(merged);
  }
  return { vocab, merges };
}

/** Returns encode(text): the ids of a text. `bpe` as learnBpe() returns it. */
export function makeEncoder({ vocab, merges }) {
  const rankOf = new Map(merges.map(([left, right], rank) => [`${left} ${right}`, rank]));
  const known = new Map();
  const encodePiece = (piece) => {
    let parts = lettersOf(piece);
    for (;;) {
      const ranks = parts.slice(1).map((part, i) => rankOf.get(`${parts[i]} ${part}`) ?? Infinity);
      const first = Math.min(...ranks);
      if (first === Infinity) return parts.map((part) => vocab.get(part));
      const [left, right] = merges[first];
      parts = mergePair(parts, left, right, left + right);
    }
  };
  return (text) => {
    const ids = [];
    for (const piece of piecesOf(text)) {
      if (!known.has(piece)) known.set(piece, encodePiece(piece));
      for (const id of known.get(piece)) ids.push(id);
    }
    return ids;
  };
}

/** Returns decode(ids): the text. Bytes that are no UTF-8 become U+FFFD. */
export function makeDecoder({ vocab }) {
  const tokens = [...vocab.keys()];
  const byteOf = new Map(BYTE_LETTERS.map((letter, byte) => [letter, byte]));
  const decoder = new TextDecoder();
  return (ids) => {
    const letters = Array.from(ids, (id) => [...tokens[id]]).flat();
    return decoder.decode(Uint8Array.from(letters, (letter) => byteOf.get(letter)));
  };
}

/** The vocabulary as a Hugging Face tokenizer.json. */
export function tokenizerJson({ vocab, merges }, special) {
  const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true };
  const token = { id: vocab.get(special), content: special, special: true };
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: [
      { ...token, single_word: false, lstrip: false, rstrip: false, normalized: false },
    ],
    normalizer: null,
    pre_tokenizer: { ...byteLevel, use_regex: true },
    // Every text begins with the mark that stands between sections.
    post_processor: {
      type: "TemplateProcessing",
      single: [
        { SpecialToken: { id: special, type_id: 0 } },
        { Sequence: { id: "A", type_id: 0 } },
      ],
      pair: [
        { SpecialToken: { id: special, type_id: 0 } },
        { Sequence: { id: "A", type_id: 0 } },
        { Sequence: { id: "B", type_id: 1 } },
      ],
      special_tokens: { [special]: { id: special, ids: [token.id], tokens: [special] } },
    },
    decoder: { ...byteLevel, use_regex: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      vocab: Object.fromEntries(vocab),
      merges: merges.map((pair) => pair.join(" ")),
    },
  };
}
