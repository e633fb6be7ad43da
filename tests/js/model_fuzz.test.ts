// Good files with a few bytes changed: read, or refused with a reason; never anything else.
import fc from "fast-check";
import { expect, test } from "vitest";
import { ModelError } from "../../web/src/model/model_error.js";
import { readHeader } from "../../web/src/model/safetensors.js";
import { Tokenizer } from "../../web/src/model/tokenizer.js";
import { readTokenizer } from "../../web/src/model/tokenizer_file.js";
import { float32, gpt2Numbers, safetensors, tensorsOf } from "./model_files.js";
import { byteTokenizer } from "./tokenizer_files.js";

const RUNS = 2000;
const SIZES = {
  layers: 1,
  heads: 1,
  kvHeads: 1,
  headDim: 2,
  embed: 2,
  hidden: 2,
  vocab: 3,
  positions: 2,
};

/** Where, how many bytes go, and what comes in their place; most changes are of one byte. */
const change = fc.tuple(
  fc.double({ min: 0, max: 0.999, noNaN: true }),
  fc.nat({ max: 3 }),
  fc.oneof(
    fc.uint8Array({ maxLength: 3 }),
    fc.constantFrom(
      '"',
      "{",
      "}",
      "[",
      "]",
      ",",
      ":",
      "0",
      "9",
      "-",
      "e9",
      ".5",
      "\\u0000",
      "null",
    ),
  ),
);

function changed(bytes: Uint8Array, changes: [number, number, Uint8Array | string][]): Uint8Array {
  let all = bytes;
  for (const [place, gone, news] of changes) {
    const at = Math.floor(place * all.length);
    const put = typeof news === "string" ? new TextEncoder().encode(news) : news;
    all = Uint8Array.of(...all.subarray(0, at), ...put, ...all.subarray(at + gone));
  }
  return all;
}

/** The value, or null where it was refused with a reason. */
async function readOrRefused<T>(read: () => Promise<T>): Promise<T | null> {
  try {
    return await read();
  } catch (error) {
    expect(error).toBeInstanceOf(ModelError);
    expect((error as ModelError).message.length).toBeGreaterThan(20);
    return null;
  }
}

test("headers of safetensors", async () => {
  const good = safetensors(tensorsOf(gpt2Numbers(SIZES), float32), { format: "pt" });
  const bytes = new Uint8Array(await good.arrayBuffer());
  let refused = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 3 }), async (changes) => {
      const file = new Blob([changed(bytes, changes) as BlobPart]);
      const header = await readOrRefused(() => readHeader(file));
      if (header === null) {
        refused++;
        return;
      }
      // What is read fills the file to its end, whatever was changed.
      const tensors = [...header.tensors.values()].sort(
        (a, b) => a.begin - b.begin || a.end - b.end,
      );
      tensors.forEach((tensor, at) => {
        expect(tensor.begin).toBe(at === 0 ? tensor.begin : tensors[at - 1]?.end);
      });
      expect(tensors.at(-1)?.end).toBe(file.size);
    }),
    { numRuns: RUNS },
  );
  expect(refused).toBeGreaterThan(RUNS / 4);
  expect(refused).toBeLessThan(RUNS);
});

test("tokenizers", async () => {
  const json = byteTokenizer([
    ["a", "b"],
    ["ab", "c"],
  ]);
  const bytes = new TextEncoder().encode(JSON.stringify(json));
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 2 }), async (changes) => {
      const file = new Blob([changed(bytes, changes) as BlobPart]);
      await readOrRefused(async () => {
        const tokenizer = new Tokenizer(await readTokenizer(file));
        const { ids, pieces } = tokenizer.encode("abc, ü ab<|endoftext|>");
        expect(tokenizer.pieces(ids)).toHaveLength(pieces.length);
      });
    }),
    { numRuns: RUNS },
  );
});

test("texts of any kind are encoded without loss", async () => {
  const json = byteTokenizer([["a", "b"]]);
  const tokenizer = new Tokenizer(await readTokenizer(new Blob([JSON.stringify(json)])));
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 40 }), (text) => {
      const { ids, pieces } = tokenizer.encode(text);
      expect(tokenizer.decode(ids)).toBe(text);
      expect(tokenizer.pieces(ids)).toEqual(pieces);
    }),
    { numRuns: RUNS },
  );
});
