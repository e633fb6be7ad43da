// The tokenizer of the language model beside the same algorithm without any bookkeeping.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  BYTE_LETTERS,
  learnBpe,
  makeDecoder,
  makeEncoder,
  tokenizerJson,
} from "../../language_model/bpe.mjs";
import { chaptersOf, divide } from "../../language_model/corpus.mjs";
import { passageOf } from "../../language_model/recipe.mjs";

const MARK = "<|mark|>";
const TEXTS = [
  "the cat sat on the mat; the dog sat on the log. aaaa aaa aa",
  "The theme's theory: 12 121 1212, naïve — naïve\n\nthe end  of\tit",
];

/** Pieces as in GPT-2's tokenizer, each as a list of letters. */
const wordsOf = (texts) =>
  texts
    .flatMap((text) =>
      text.match(/'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu),
    )
    .map((piece) => [...new TextEncoder().encode(piece)].map((byte) => BYTE_LETTERS[byte]));

function joined(word, [left, right]) {
  const result = [];
  for (const letter of word) {
    if (letter === right && result.at(-1) === left && !result.merged) {
      result[result.length - 1] = left + right;
      result.merged = true;
    } else {
      result.push(letter);
      result.merged = false;
    }
  }
  return [...result];
}

/** All pairs counted anew for every merge. */
function bruteForce(texts, size) {
  const tokens = [MARK, ...BYTE_LETTERS];
  let words = wordsOf(texts);
  const merges = [];
  while (tokens.length < size) {
    const counts = new Map();
    for (const word of words) {
      word.slice(1).forEach((right, i) => {
        const pair = JSON.stringify([word[i], right]);
        counts.set(pair, (counts.get(pair) ?? 0) + 1);
      });
    }
    const rank = ([left, right]) => tokens.indexOf(left) * 1e6 + tokens.indexOf(right);
    const pairs = [...counts].map(([pair, count]) => ({ pair: JSON.parse(pair), count }));
    pairs.sort((a, b) => b.count - a.count || rank(a.pair) - rank(b.pair));
    if (pairs.length === 0) break;
    const { pair } = pairs[0];
    merges.push(pair);
    tokens.push(pair.join(""));
    words = words.map((word) => joined(word, pair));
  }
  return { merges, tokens };
}

test("LearnsTheMergesOfBruteForce", () => {
  for (const size of [257, 260, 290, 10_000]) {
    const { vocab, merges } = learnBpe(TEXTS, size, MARK);
    const plain = bruteForce(TEXTS, size);
    assert.deepEqual(merges, plain.merges);
    assert.deepEqual([...vocab.keys()], plain.tokens);
    assert.deepEqual(
      [...vocab.values()],
      plain.tokens.map((_, id) => id),
    );
  }
});

test("EncodesByMergesInTheirOrder", () => {
  const bpe = learnBpe(TEXTS, 300, MARK);
  const encode = makeEncoder(bpe);
  const text = "the matted theorist's cats: 1212aaa naïve";
  const words = bpe.merges.reduce(
    (all, pair) => all.map((word) => joined(word, pair)),
    wordsOf([text]),
  );
  assert.deepEqual(
    encode(text),
    words.flat().map((token) => bpe.vocab.get(token)),
  );
});

test("EveryTextComesBack", () => {
  const bpe = learnBpe(TEXTS, 280, MARK);
  const [encode, decode] = [makeEncoder(bpe), makeDecoder(bpe)];
  for (const text of ["", " ", "a\n\n b", "𝛑 🙂 ünseen 日本", "\u0000\u007f", ...TEXTS]) {
    assert.equal(decode(encode(text)), text);
  }
});

test("TheFileIsThatOfAByteLevelTokenizer", () => {
  const bpe = learnBpe(TEXTS, 270, MARK);
  const { model, added_tokens: added, pre_tokenizer: split } = tokenizerJson(bpe, MARK);
  assert.equal(model.type, "BPE");
  assert.equal(split.type, "ByteLevel");
  assert.deepEqual(model.vocab, Object.fromEntries(bpe.vocab));
  assert.deepEqual(
    model.merges,
    bpe.merges.map((pair) => pair.join(" ")),
  );
  assert.deepEqual([added[0].id, added[0].content, added[0].special], [0, MARK, true]);
});

test("VersesBecomeChaptersWithoutNumbers", () => {
  const lines = ["Holy Bible.", "Ge1:1 In the beginning", "Ge1:2 And the earth", "1Jo2:1 My", ""];
  assert.deepEqual(chaptersOf(lines), [
    { name: "Ge1", text: "In the beginning\nAnd the earth" },
    { name: "1Jo2", text: "My" },
  ]);
});

test("EveryTwentiethSectionIsHeldOut", () => {
  const sections = Array.from({ length: 45 }, (_, n) => ({ name: String(n + 1), text: "x" }));
  const names = (list) => list.map(({ name }) => Number(name));
  const { train, heldOut } = divide(sections);
  assert.deepEqual(names(heldOut), [20, 40]);
  assert.equal(train.length, 43);
  assert.deepEqual(names(divide(sections.slice(0, 3)).heldOut), [3]);
  assert.throws(() => divide(sections.slice(0, 1)), /two sections/);
});

test("APassageIsWholeLinesOfOneWindow", () => {
  const section = { name: "Ge1", text: "one two\nthree\nfour five" };
  const idsOf = (text) => ["mark", ...text.split(/\s/)];
  const of = (context) => passageOf(section, idsOf, context);
  assert.deepEqual(of(5), { section: "Ge1", text: "one two\nthree", tokens: 4 });
  assert.equal(of(6).text, section.text);
  assert.deepEqual(of(2), { section: "Ge1", text: "one two", tokens: 2 });
});
