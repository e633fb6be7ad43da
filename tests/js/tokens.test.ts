// A sentence becomes tokens that are all seen: an emoji of several code points is one of them.
import { expect, it } from "vitest";
import { MAX_TOKENS, tokenise } from "../../web/src/lib/tokens.js";

const tokens = (text: string) => tokenise(text).tokens;

it("words, numbers and marks", () => {
  expect(tokens("It's a well-known fact: 12 + 3.")).toEqual([
    "It's",
    "a",
    "well-known",
    "fact",
    ":",
    "12",
    "+",
    "3",
    ".",
  ]);
  expect(tokens("e\u0301te\u0301 हिन्दी می\u200cخواهم")).toEqual(["été", "हिन्दी", "می\u200cخواهم"]);
});

it("an emoji is one token, however many code points it has", () => {
  const family = "👩\u200d👩\u200d👧\u200d👦";
  const wales = "🏴\u{e0067}\u{e0062}\u{e0077}\u{e006c}\u{e0073}\u{e007f}";
  for (const one of [family, "🇩🇪", "👍🏽", "❤️", "1️⃣", "🏳️\u200d🌈", "👩🏿\u200d🚀", wales]) {
    expect(tokens(`a ${one} b`), one).toEqual(["a", one, "b"]);
    expect(tokens(one + one), one).toEqual([one, one]);
  }
});

it("what has no sign of its own is no token", () => {
  expect(tokens("a \u200d \ufe0f \u200b \u2060 \u00ad \ufeff \u0007 \u3164 \u0301 b")).toEqual([
    "a",
    "b",
  ]);
});

it("what is too long is cut and counted", () => {
  const { tokens: kept, dropped } = tokenise("🇩🇪 ".repeat(MAX_TOKENS + 2));
  expect([kept.length, dropped]).toEqual([MAX_TOKENS, 2]);
});
