// What the model's page makes of tokens and weights.
import { expect, test } from "vitest";
import { shownToken } from "../../web/src/model_page/attention.js";

test("tokens are written so that each is seen", () => {
  const plain = (text: string) => shownToken({ text, special: false }, 3);
  expect([" the", "\n\t", "a b"].map(plain)).toEqual(["·the", "⏎⇥", "a b"]);
  // A written token whose character is not complete, or the end of the text.
  expect(plain("")).toBe("…");
});

test("only the mark at the beginning is the start", () => {
  const mark = { text: "<|endoftext|>", special: true };
  expect(shownToken(mark, 0)).toBe("(start)");
  expect(shownToken(mark, 4)).toBe("<|endoftext|>");
  expect(shownToken(mark)).toBe("<|endoftext|>");
  expect(shownToken({ text: "In", special: false }, 0)).toBe("In");
});
