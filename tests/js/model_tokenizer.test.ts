// The site's tokenizer beside byte-pair encoding by brute force.
import { describe, expect, test } from "vitest";
import { Merges, mergeWord } from "../../web/src/model/bpe.js";
import type { Encoded } from "../../web/src/model/model_types.js";
import { splitDigits, splitGpt2 } from "../../web/src/model/split_text.js";
import { Tokenizer } from "../../web/src/model/tokenizer.js";
import { readTokenizer } from "../../web/src/model/tokenizer_file.js";
import { jsonBlob } from "./model_files.js";
import { expectModelError } from "./model_support.js";
import { random } from "./support.js";
import {
  addedToken,
  byteTokenizer,
  learnMerges,
  lettersOf,
  letterTokenizer,
  mergeSlowly,
  type TokenizerJson,
} from "./tokenizer_files.js";

const TEXT =
  "the then there these their other mother's weather, 12345 and 67 whether   the end\n\nof a thing";
const TRICKY = [
  "",
  "the weather's 123 \n\n  there",
  "they'll we've I'm THE",
  "naïve café 中文 字 über",
  "👩‍👩‍👧 family 🇩🇪",
  "עברית مرحبا",
  "tabs\tand\u00a0spaces\u2003\u0085x\ufeffy",
  "half \ud83d and \ude00 a pair",
  "a".repeat(300),
];

const WORDS = splitGpt2(TEXT).map(lettersOf);
const MERGES = learnMerges(WORDS, 120);
const open = async (json: object) => new Tokenizer(await readTokenizer(jsonBlob(json)));

/** Expects pieces that hold the text between them: every byte once, spans where their letters are. */
function expectLossless({ text, ids, pieces }: Encoded, given: string, tokenizer: Tokenizer): void {
  expect(text).toBe(given.replace(/\p{Surrogate}/gu, "\ufffd"));
  expect(tokenizer.decode(ids)).toBe(text);
  expect(pieces.map(({ id }) => id)).toEqual(ids);
  let end = 0;
  for (const piece of pieces.filter(({ special }) => !special)) {
    expect(piece.start).toBeLessThanOrEqual(end);
    if (!piece.part)
      expect(piece.text.trimStart()).toBe(text.slice(piece.start, piece.end).trimStart());
    else expect(piece.text).toMatch(/^[0-9A-F]{2}( [0-9A-F]{2})*$/);
    end = piece.end;
  }
  expect(end).toBe(text.length);
}

describe("byte-pair merges", () => {
  test("are those of brute force, on words of few letters", () => {
    const next = random(8);
    const word = (length: number) =>
      Array.from({ length }, () => "abc"[Math.floor((next() + 1) * 1.5)] as string);
    const learned = learnMerges(
      Array.from({ length: 30 }, () => word(20)),
      40,
    );
    const tokens = [...new Set(["a", "b", "c", ...learned.map((pair) => pair.join(""))])];
    const merges = new Merges();
    for (const [left, right] of learned)
      merges.add(tokens.indexOf(left), tokens.indexOf(right), tokens.indexOf(left + right));
    for (let length = 0; length < 200; length++) {
      const letters = word(length);
      const found = mergeWord(
        letters.map((letter) => tokens.indexOf(letter)),
        merges,
      );
      expect(found.map((id) => tokens[id])).toEqual(mergeSlowly(letters, learned));
    }
  });

  test("take little longer for a long word", () => {
    const merges = new Merges();
    for (let id = 0; id < 16; id++) merges.add(id, id, id + 1);
    const ids = mergeWord(new Array(2 ** 17).fill(0), merges);
    expect(ids).toEqual([16, 16]);
  });
});

describe("words", () => {
  test("of GPT-2", () => {
    expect(splitGpt2("Hello  world's 123!?\n\n x")).toEqual([
      "Hello",
      " ",
      " world",
      "'s",
      " 123",
      "!?",
      "\n\n",
      " x",
    ]);
    expect(splitGpt2("a\u0085b\ufeffc")).toEqual(["a", "\u0085", "b", "\ufeff", "c"]);
    expect(splitDigits("ab12 c3")).toEqual(["ab", "1", "2", " c", "3"]);
    expect(splitGpt2(" ".repeat(100_000))).toHaveLength(1);
  });

  test("of Llama 3 and Qwen 2", async () => {
    const pattern = (digits: string) =>
      `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
    for (const [digits, numbers] of [
      ["{1,3}", ["123", "45"]],
      ["", ["1", "2", "3", "4", "5"]],
    ] as const) {
      const pre_tokenizer = {
        type: "Sequence",
        pretokenizers: [
          {
            type: "Split",
            pattern: { Regex: pattern(digits) },
            behavior: "Isolated",
            invert: false,
          },
          { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
        ],
      };
      const { splits } = await readTokenizer(jsonBlob(byteTokenizer([], { pre_tokenizer })));
      const words = splits.reduce<readonly string[]>(
        (all, split) => all.flatMap(split),
        ["It'S (fine) 12345!\n\n  end"],
      );
      expect(words).toEqual(["It", "'S", " (", "fine", ")", " ", ...numbers, "!\n\n", " ", " end"]);
    }
  });
});

describe("a tokenizer over bytes", () => {
  test.each(TRICKY)("encodes without loss, as brute force does: %j", async (text) => {
    const tokenizer = await open(byteTokenizer(MERGES));
    const encoded = tokenizer.encode(text);
    expectLossless(encoded, text, tokenizer);
    const { vocab } = byteTokenizer(MERGES).model;
    const slow = splitGpt2(encoded.text).flatMap((word) => mergeSlowly(lettersOf(word), MERGES));
    expect(encoded.ids).toEqual(slow.map((token) => vocab[token]));
  });

  test("merges may be pairs, and stand in any file that means the same", async () => {
    const json = byteTokenizer(MERGES);
    const pairs = { ...json, model: { ...json.model, merges: MERGES } };
    const [one, two] = [await open(json), await open(pairs)];
    expect(two.encode(TEXT)).toEqual(one.encode(TEXT));
  });

  test("markers are found in the text, the longest first", async () => {
    const json = byteTokenizer(MERGES);
    const size = Object.keys(json.model.vocab).length;
    json.added_tokens.push(
      addedToken(size + 1, "<|end"),
      addedToken(size + 2, "\t\t", { special: false }),
    );
    const { ids, pieces } = (await open(json)).encode("a<|endoftext|>b<|endc\t\t");
    const vocab = json.model.vocab;
    expect(ids).toEqual([vocab.a, size, vocab.b, size + 1, vocab.c, size + 2]);
    expect(pieces[1]).toEqual({
      id: size,
      text: "<|endoftext|>",
      part: false,
      special: true,
      start: 1,
      end: 14,
    });
    expect((await open(json)).decode(ids)).toBe("abc\t\t");
  });

  test("a part of a character is shown by its bytes", async () => {
    const tokenizer = await open(byteTokenizer([]));
    const { pieces } = tokenizer.encode("aé");
    expect(pieces.map(({ text, part, start, end }) => [text, part, start, end])).toEqual([
      ["a", false, 0, 1],
      ["C3", true, 1, 2],
      ["A9", true, 1, 2],
    ]);
    const ids = pieces.map(({ id }) => id);
    expect(tokenizer.decode(ids.slice(0, 2))).toBe("a\ufffd");
    expect(tokenizer.pieces(ids)).toEqual(pieces);
  });

  test("a word that is a token stays one where the file says so", async () => {
    const json = byteTokenizer([["a", "b"]]);
    json.model.vocab.abc = 300;
    json.added_tokens = [];
    expect((await open(json)).encode("abc").ids).toEqual([256, json.model.vocab.c]);
    json.model.ignore_merges = true;
    expect((await open(json)).encode("abc").ids).toEqual([300]);
  });

  test("a space is put first where the file says so", async () => {
    const pre_tokenizer = { type: "ByteLevel", add_prefix_space: true, use_regex: true };
    const tokenizer = await open(byteTokenizer(MERGES, { pre_tokenizer }));
    const [first, second] = [tokenizer.encode("the end"), tokenizer.encode(" the end")];
    expect(first.ids).toEqual(second.ids);
    expect(first.pieces[0]).toMatchObject({ text: " the", start: 0, end: 3 });
  });

  test("NFC, digits alone, and a beginning of the text", async () => {
    const json = byteTokenizer(MERGES, {
      normalizer: { type: "NFC" },
      pre_tokenizer: {
        type: "Sequence",
        pretokenizers: [
          { type: "Digits", individual_digits: true },
          { type: "ByteLevel", add_prefix_space: false, use_regex: true },
        ],
      },
      post_processor: {
        type: "Sequence",
        processors: [
          { type: "ByteLevel" },
          {
            type: "TemplateProcessing",
            single: [
              { SpecialToken: { id: "x", type_id: 0 } },
              { Sequence: { id: "A", type_id: 0 } },
            ],
            special_tokens: { x: { id: "x", ids: [256], tokens: ["x"] } },
          },
        ],
      },
    });
    const { text, ids, pieces } = (await open(json)).encode("e\u0301 12");
    expect(text).toBe("é 12");
    expect(ids[0]).toBe(256);
    expect(pieces[0]).toMatchObject({ special: true, start: 0, end: 0 });
    expect(pieces.slice(-2).map((piece) => piece.text)).toEqual(["1", "2"]);
  });
});

describe("a tokenizer over letters", () => {
  const spaced = TEXT.replaceAll(" ", "▁").replaceAll("\n", "");
  const letters = [...new Set(spaced)];
  const merges = learnMerges([[...`▁${spaced}`]], 60);
  const json = letterTokenizer(letters, merges);

  test.each(TRICKY)("encodes without loss: %j", async (text) => {
    const tokenizer = await open(json);
    const encoded = tokenizer.encode(text);
    expectLossless(encoded, text, tokenizer);
    expect(encoded.ids[0]).toBe(1);
  });

  test("is brute force over letters where all have tokens", async () => {
    for (const text of ["the weather", "  other things", "mother's end "]) {
      const { ids } = (await open(json)).encode(text);
      const slow = mergeSlowly([...`▁${text.replaceAll(" ", "▁")}`], merges);
      expect(ids.slice(1)).toEqual(slow.map((token) => json.model.vocab[token]));
    }
  });

  test("letters without a token are their bytes", async () => {
    const { pieces } = (await open(json)).encode("中");
    expect(pieces.slice(-3).map(({ id, text }) => [id - 3, text])).toEqual([
      [0xe4, "E4"],
      [0xb8, "B8"],
      [0xad, "AD"],
    ]);
  });

  test("the newer form of the same file gives the same tokens", async () => {
    const newer: TokenizerJson = {
      ...json,
      normalizer: null,
      pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: false },
    };
    const [old, own] = [await open(json), await open(newer)];
    for (const text of ["the weather", "mother's <s> end"])
      expect(own.encode(text).ids.slice(0, 4)).toEqual(old.encode(text).ids.slice(0, 4));
    expect(own.encode(" the").ids).toEqual(own.encode("the").ids);
  });

  test("without a fallback an unknown letter is named", async () => {
    const model = { ...json.model, byte_fallback: false };
    const tokenizer = await open({ ...json, model });
    await expectModelError("bad-request", ["中"], async () => tokenizer.encode("the 中"));
  });
});

describe("a tokenizer that this page does not know", () => {
  const json = byteTokenizer(MERGES);
  const model = (more: object) => ({ ...json, model: { ...json.model, ...more } });
  const regex = (Regex: string) => ({
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        { type: "Split", pattern: { Regex }, behavior: "Isolated" },
        { type: "ByteLevel" },
      ],
    },
  });
  const bad: [string, object, string][] = [
    ["another model", model({ type: "Unigram" }), "Unigram"],
    ["dropout", model({ dropout: 0.1 }), "dropout"],
    ["a suffix", model({ end_of_word_suffix: "</w>" }), "end_of_word_suffix"],
    ["a field of the model", model({ more: 1 }), "model.more"],
    ["a field of the file", { ...json, more: 1 }, "tokenizer.more"],
    ["a normaliser", { ...json, normalizer: { type: "Lowercase" } }, "Lowercase"],
    [
      "a replacement",
      { ...json, normalizer: { type: "Replace", pattern: { Regex: "a" }, content: "▁" } },
      "Regex",
    ],
    ["a pre-tokeniser", { ...json, pre_tokenizer: { type: "Whitespace" } }, "Whitespace"],
    ["no pre-tokeniser", { ...json, pre_tokenizer: null }, "ByteLevel"],
    ["a post-processor", { ...json, post_processor: { type: "BertProcessing" } }, "BertProcessing"],
    ["an expression that never ends", { ...json, ...regex("(a+)+$") }, "(a+)+$"],
    [
      "a token with spaces around",
      { ...json, added_tokens: [addedToken(999, "x", { lstrip: true })] },
      "lstrip",
    ],
    ["an id twice", model({ vocab: { a: 0, b: 0 }, merges: [] }), "two tokens have the id 0"],
    ["an id below 0", model({ vocab: { a: -1 }, merges: [] }), "“a”"],
    ["an id beyond all", model({ vocab: { a: 2 ** 20 }, merges: [] }), "1048576"],
    ["a merge of three", model({ merges: ["a b c"] }), "merge 1"],
    ["a merge of a number", model({ merges: [["a", 1]] }), "merge 1"],
    ["a merge of what is no token", model({ merges: ["a zz"] }), "zz"],
    ["a merge twice", model({ merges: [...json.model.merges, json.model.merges[0]] }), "twice"],
    ["a vocabulary that is a list", model({ vocab: ["a"] }), "not an object"],
    ["no vocabulary", model({ vocab: null }), "vocab is missing"],
    [
      "a token of 2000 letters",
      model({ vocab: { ["x".repeat(2000)]: 0 }, merges: [] }),
      "2000 letters",
    ],
    ["a marker with another id", { ...json, added_tokens: [addedToken(5, "a")] }, "another id"],
    ["an empty marker", { ...json, added_tokens: [addedToken(999, "")] }, "0 letters"],
  ];
  test.each(bad)("%s", async (_, file, words) => {
    await expectModelError("bad-tokenizer", [words], () => open(file));
  });

  test.each([
    ["a name twice", '{"model":{"vocab":{"a":0,"a":1}}}', "twice"],
    ["NaN", '{"model":NaN}', "no value"],
    ["1e999", '{"model":1e999}', "too large"],
    ["deep nesting", "[".repeat(1e5), "nesting"],
    ["a list", "[]", "not an object"],
  ])("text that has %s", async (_, text, words) => {
    await expectModelError("bad-tokenizer", [words], () => readTokenizer(new Blob([text])));
  });

  test("a file of 64 MB is not read", async () => {
    const file = { size: 64_000_001, arrayBuffer: () => Promise.reject(new Error("read")) };
    await expectModelError("bad-tokenizer", ["64000001"], () =>
      readTokenizer(file as unknown as Blob),
    );
  });

  test("names of vocabularies are only names", async () => {
    const vocab = JSON.stringify(json.model.vocab).replace(
      "{",
      '{"__proto__":9000,"constructor":9001,',
    );
    const text = JSON.stringify(json).replace(JSON.stringify(json.model.vocab), vocab);
    const tokenizer = new Tokenizer(await readTokenizer(new Blob([text])));
    expect(tokenizer.decode([9000, 9001])).toBe("__proto__constructor");
  });

  test("a text of more than 100000 letters is not encoded", async () => {
    const tokenizer = await open(json);
    await expectModelError("too-long", ["100001"], async () =>
      tokenizer.encode("a".repeat(100_001)),
    );
    const { ids } = tokenizer.encode("🙂".repeat(50_000));
    expect(tokenizer.decode(ids)).toBe("🙂".repeat(50_000));
  });
});
