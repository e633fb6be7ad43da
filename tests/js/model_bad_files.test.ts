// Files that are not what they seem: each row of a list of what has broken other readers.
import { describe, expect, test } from "vitest";
import { readHeader } from "../../web/src/model/safetensors.js";
import { parseJson } from "../../web/src/model/strict_json.js";
import {
  fileOf,
  float32,
  gpt2Numbers,
  jsonBlob,
  llamaNumbers,
  type Sizes,
  type Stored,
  safetensors,
  type Tensors,
  tensorsOf,
} from "./model_files.js";
import { expectModelError, openHere } from "./model_support.js";

const DATA = [new Uint8Array(24)];
const entry = (more: object = {}) => ({
  dtype: "F32",
  shape: [2, 3],
  data_offsets: [0, 24],
  ...more,
});
const headerOf = (header: unknown, data = DATA) => fileOf(JSON.stringify(header), data);

function lengthAlone(length: bigint, rest: Uint8Array[] = []): Blob {
  const bytes = new DataView(new ArrayBuffer(8));
  bytes.setBigUint64(0, length, true);
  return new Blob([bytes.buffer, ...rest] as BlobPart[]);
}

/** A file that claims to be large and remembers what was read of it. */
function largeFile(size: number, start: Blob): { file: Blob; read: number[] } {
  const read: number[] = [];
  const file = {
    size,
    slice: (begin: number, end: number) => {
      read.push(end - begin);
      return start.slice(begin, end);
    },
  };
  return { file: file as unknown as Blob, read };
}

describe("the header's length", () => {
  test.each([
    ["nothing", new Blob([]), "0 bytes"],
    ["eight bytes", lengthAlone(2n), "8 bytes"],
    ["the largest u64", lengthAlone(2n ** 64n - 1n, DATA), "length of a header"],
    ["more than the file has", lengthAlone(25n, DATA), "length of a header"],
    [
      "less than two braces",
      lengthAlone(1n, [new TextEncoder().encode("{}")]),
      "length of a header",
    ],
    ["no header where one should be", lengthAlone(4n, DATA), "no header"],
  ])("%s is refused", async (_, file, words) => {
    await expectModelError("not-a-model", [words], () => readHeader(file));
  });

  test("beyond 25 MB nothing of the header is read", async () => {
    for (const length of [25_000_001n, 4_000_000_000n]) {
      const start = lengthAlone(length, [new TextEncoder().encode("{")]);
      const { file, read } = largeFile(8e9, start);
      await expectModelError("bad-header", [String(length), "25000000"], () => readHeader(file));
      expect(read.reduce((sum, bytes) => sum + bytes, 0)).toBeLessThan(100);
    }
  });

  test.each([
    ["GGUF", "GGUF\u0003\0\0\0\0\0\0\0"],
    ["zip", "PK\u0003\u0004aaaaaaaa"],
    ["pickle", "\u0080\u0002}q\u0000aaaaaa"],
    ["HDF5", "\u0089HDF\r\n\u001a\naaaaa"],
  ])("a file of another kind is named: %s", async (kind, start) => {
    const bytes = Uint8Array.from(start, (letter) => letter.charCodeAt(0));
    const file = new Blob([bytes]);
    await expectModelError("not-a-model", [kind, "not a safetensors"], () => readHeader(file));
  });
});

describe("the header's grammar", () => {
  const bad: [string, string | Uint8Array, string][] = [
    ["bytes that are no UTF-8", Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x7d), "not UTF-8"],
    ["no JSON", "{a}", "no text, at letter 2"],
    ["more after the end", "{} {}", "more after the end"],
    ["a comma too much", '{"a":1,}', "no text"],
    ["a single quote", "{'a':1}", "no text"],
    ["NaN", '{"a":NaN}', "no whole number"],
    ["deep nesting", `{"a":${"[".repeat(100_000)}`, "nesting"],
    ["a name twice", '{"a":0,"a":0}', "twice"],
    ["a field twice", '{"a":{"dtype":"F32","dtype":"F32"}}', "twice"],
    ["an escape twice the same name", '{"a":0,"\\u0061":0}', "twice"],
    ["half a character", '{"\\ud800":0}', "half a character"],
    ["a control character", '{"a\u0001":0}', "no text may hold"],
    ["an unknown escape", '{"\\x41":0}', "unknown escape"],
    ["an escape named like a method", '{"\\constructor":0}', "unknown escape"],
    ["a list that does not end", '{"a":[0,1}', "does not end"],
  ];
  test.each(bad)("%s is refused", async (_, header, words) => {
    await expectModelError("bad-header", [words], () => readHeader(fileOf(header, DATA)));
  });

  test("a million names are refused soon", async () => {
    const names = Array.from({ length: 1_000_000 }, (_, n) => `"${n}":{}`).join(",");
    await expectModelError("bad-header", ["more values", "letter"], () =>
      readHeader(fileOf(`{${names}`)),
    );
  });

  test("spaces after the object are part of the format", async () => {
    const file = fileOf(`${JSON.stringify({ a: entry() })}   \n`, DATA);
    expect((await readHeader(file)).tensors.get("a")).toMatchObject({
      dtype: "F32",
      shape: [2, 3],
    });
  });
});

describe("an entry of the header", () => {
  const numbers = "whole numbers";
  const bad: [string, unknown, string][] = [
    ["a missing field", { dtype: "F32", shape: [2, 3] }, "exactly"],
    ["an unknown field", entry({ more: 1 }), "exactly"],
    ["a list", [1], "not described"],
    ["an unknown type", entry({ dtype: "F33" }), "F33"],
    ["a type named like a method", entry({ dtype: "constructor" }), "constructor"],
    ["a type that is a number", entry({ dtype: 3 }), "unknown type"],
    ["a shape of text", entry({ shape: "2,3" }), numbers],
    ["a shape of texts", entry({ shape: ["2", "3"] }), numbers],
    ["a shape that does not fit", entry({ shape: [2, 4] }), "take 32"],
    ["a shape that overflows", entry({ shape: [2 ** 31, 2 ** 31, 4] }), "cannot be addressed"],
    [
      "a shape that overflows to its size",
      entry({ shape: [2 ** 40, 2 ** 40] }),
      "cannot be addressed",
    ],
    ["a rank of 100", entry({ shape: Array(100).fill(1) }), "100 extents"],
    ["one offset", entry({ data_offsets: [24] }), "1 data_offsets"],
    ["three offsets", entry({ data_offsets: [0, 24, 24] }), "3 data_offsets"],
    ["offsets the wrong way round", entry({ data_offsets: [24, 0] }), "24 to 0"],
    ["offsets beyond the end", entry({ data_offsets: [8, 32] }), "24 bytes of data"],
    ["a gap before", entry({ shape: [2, 2], data_offsets: [8, 24] }), "begins at byte 8"],
    ["bytes behind", entry({ shape: [2, 2], data_offsets: [0, 16] }), "end at byte 16 of 24"],
  ];
  test.each(bad)("%s is refused", async (_, value, words) => {
    await expectModelError("bad-header", [words], () => readHeader(headerOf({ tensor: value })));
  });

  test.each([
    ["negative", "[-8,16]", "no whole number"],
    ["fractions", "[0,24.0]", "does not end"],
    ["exponents", "[0,2e1]", "does not end"],
    ["a leading zero", "[0,024]", "does not end"],
    ["beyond 2^53", "[0,9007199254740993]", "too large"],
    ["1e999", "[0,1e999]", "does not end"],
  ])("%s offsets are refused", async (_, offsets, words) => {
    const header = `{"a":{"dtype":"F32","shape":[2,3],"data_offsets":${offsets}}}`;
    await expectModelError("bad-header", [words], () => readHeader(fileOf(header, DATA)));
  });

  test("tensors may not overlap, in whatever order they stand", async () => {
    const half = (begin: number) => ({
      dtype: "F32",
      shape: [4],
      data_offsets: [begin, begin + 16],
    });
    const file = headerOf({ second: half(8), first: half(0) });
    await expectModelError("bad-header", ["second", "begins at byte 8", "ends at 16"], () =>
      readHeader(file),
    );
  });

  test("metadata are texts", async () => {
    for (const metadata of [1, [], { a: 1 }, { a: {} }])
      await expectModelError("bad-header", ["__metadata__"], () =>
        readHeader(headerOf({ __metadata__: metadata, a: entry() })),
      );
  });

  test("names are only names", async () => {
    const names = ["constructor", "toString", "<img src=x onerror=alert(1)>", "\u202e", ""];
    const empty = { dtype: "F32", shape: [0, 3], data_offsets: [0, 0] };
    const header = `{"__proto__":${JSON.stringify(empty)},${names
      .map((name) => `${JSON.stringify(name)}:${JSON.stringify(empty)}`)
      .join(",")},"a":${JSON.stringify(entry())}}`;
    const { tensors } = await readHeader(fileOf(header, DATA));
    expect([...tensors.keys()]).toEqual(["__proto__", ...names, "a"]);
    expect(Object.getPrototypeOf(tensors.get("__proto__"))).toBe(Object.prototype);
    expect(({} as { dtype?: string }).dtype).toBeUndefined();
    await expectModelError("bad-header", ["1000000 letters", "xxx…"], () =>
      readHeader(headerOf({ ["x".repeat(1_000_000)]: empty, a: entry() })),
    );
  });
});

const SIZES: Sizes = {
  layers: 1,
  heads: 2,
  kvHeads: 2,
  headDim: 4,
  embed: 8,
  hidden: 12,
  vocab: 11,
  positions: 6,
};
const config = (more: object = {}) => jsonBlob({ model_type: "gpt2", n_head: 2, ...more });
const llama = (more: object = {}) =>
  jsonBlob({ model_type: "llama", num_attention_heads: 2, num_key_value_heads: 2, ...more });
const gpt2 = (change: (tensors: Tensors) => void = () => {}) => {
  const tensors = tensorsOf(gpt2Numbers(SIZES));
  change(tensors);
  return safetensors(tensors);
};
const zeros = (shape: number[]): Stored =>
  float32(shape, Array(shape.reduce((a, b) => a * b)).fill(0));

describe("a model that this page does not know", () => {
  const gpt2Files: [
    string,
    (tensors: Tensors) => void,
    Parameters<typeof expectModelError>[0],
    string[],
  ][] = [
    ["other tensors", (all) => all.delete("wte.weight"), "unknown-model", ["wte.weight"]],
    ["one tensor too few", (all) => all.delete("h.0.ln_2.bias"), "missing", ["h.0.ln_2.bias"]],
    [
      "one too many",
      (all) => all.set("h.0.attn.q_norm.weight", zeros([8])),
      "unknown-model",
      ["q_norm"],
    ],
    ["a layer left out", (all) => all.set("h.2.ln_1.weight", zeros([8])), "missing", ["layer 1"]],
    [
      "another shape",
      (all) => all.set("wpe.weight", zeros([6, 9])),
      "mismatch",
      ["wpe.weight", "[6, 9]", "[6, 8]"],
    ],
    [
      "no rows",
      (all) => all.set("wpe.weight", { dtype: "F32", shape: [0, 8], bytes: new Uint8Array() }),
      "mismatch",
      ["wpe.weight"],
    ],
    [
      "another type",
      (all) => all.set("ln_f.bias", { dtype: "I32", shape: [8], bytes: new Uint8Array(32) }),
      "unknown-model",
      ["I32"],
    ],
    [
      "NaN",
      (all) => all.set("ln_f.bias", float32([8], [0, 0, 0, NaN, 0, 0, 0, 0])),
      "bad-weights",
      ["Number 4", "ln_f.bias", "NaN"],
    ],
    [
      "a bfloat16 infinity",
      (all) =>
        all.set("ln_f.bias", {
          dtype: "BF16",
          shape: [8],
          bytes: new Uint8Array(Uint16Array.of(0, 0x7f80, 0, 0, 0, 0, 0, 0).buffer),
        }),
      "bad-weights",
      ["Number 2", "Infinity"],
    ],
    [
      "a float64 beyond float32",
      (all) =>
        all.set("ln_f.bias", {
          dtype: "F64",
          shape: [8],
          bytes: new Uint8Array(Float64Array.of(1e39, 0, 0, 0, 0, 0, 0, 0).buffer),
        }),
      "bad-weights",
      ["Number 1"],
    ],
  ];
  test.each(gpt2Files)("%s", async (_, change, code, words) => {
    await expectModelError(code, words, () =>
      openHere({ weights: gpt2(change), config: config() }),
    );
  });

  test("more heads or layers than can be shown", async () => {
    const wide = tensorsOf(
      gpt2Numbers({ ...SIZES, heads: 257, kvHeads: 257, headDim: 1, embed: 257 }),
    );
    await expectModelError("unknown-model", ["257 heads", "256"], () =>
      openHere({ weights: safetensors(wide), config: config({ n_head: 257 }) }),
    );
    const small = safetensors(tensorsOf(llamaNumbers(SIZES, { tied: true })));
    await expectModelError("unknown-model", ["257 heads", "256"], () =>
      openHere({ weights: small, config: llama({ num_attention_heads: 257 }) }),
    );
    const deep = gpt2((all) => {
      for (let n = 0; n < 1025; n++) all.set(`h.${n}.ln_1.weight`, zeros([8]));
    });
    await expectModelError("unknown-model", ["1025 layers", "1024"], () =>
      openHere({ weights: deep, config: config() }),
    );
  });

  const configs: [object, Parameters<typeof expectModelError>[0], string[]][] = [
    [{ model_type: "gptj" }, "unknown-model", ["model_type is gptj"]],
    [{ activation_function: "relu" }, "unknown-model", ["activation_function", "gelu_new"]],
    [{ scale_attn_by_inverse_layer_idx: true }, "unknown-model", ["scale_attn_by_inverse"]],
    [{ n_head: 3 }, "mismatch", ["3 heads"]],
    [{ n_head: 0 }, "bad-config", ["n_head is 0"]],
    [{ n_head: "2" }, "bad-config", ["n_head"]],
    [{ n_head: null }, "missing", ["config.json"]],
    [{ layer_norm_epsilon: -1 }, "bad-config", ["layer_norm_epsilon"]],
    [{ eos_token_id: [1.5] }, "bad-config", ["eos_token_id"]],
  ];
  test.each(configs)("a config with %j", async (more, code, words) => {
    await expectModelError(code, words, () => openHere({ weights: gpt2(), config: config(more) }));
  });

  const llamaConfigs: [object, Parameters<typeof expectModelError>[0], string[]][] = [
    [{ model_type: "gemma" }, "unknown-model", ["gemma"]],
    [{ hidden_act: "gelu" }, "unknown-model", ["hidden_act"]],
    [{ num_attention_heads: 3 }, "mismatch", ["3 heads"]],
    [{ num_attention_heads: null }, "missing", ["num_attention_heads"]],
    [{ num_key_value_heads: 1 }, "mismatch", ["1 of keys"]],
    [{ rope_scaling: { rope_type: "yarn", factor: 2 } }, "unknown-model", ["yarn"]],
    [{ rope_scaling: { rope_type: "linear" } }, "missing", ["factor"]],
    [{ rope_theta: 0 }, "bad-config", ["rope_theta"]],
    [{ partial_rotary_factor: 0.5 }, "unknown-model", ["partial_rotary_factor"]],
    [{ tie_word_embeddings: false }, "missing", ["lm_head.weight"]],
  ];
  test.each(llamaConfigs)("a Llama config with %j", async (more, code, words) => {
    const weights = safetensors(tensorsOf(llamaNumbers(SIZES, { tied: true })));
    await expectModelError(code, words, () => openHere({ weights, config: llama(more) }));
  });

  test.each([
    ["not UTF-8", new Blob([Uint8Array.of(0x7b, 0xff)]), "UTF-8"],
    ["not JSON", new Blob(["{'n_head': 2}"]), "no text"],
    ["a list", new Blob(["[]"]), "not an object"],
    ["too long", new Blob(["x".repeat(1_000_001)]), "1000001 bytes"],
    ["1e999", new Blob(['{"n_head":1e999}']), "too large"],
  ])("a config that is %s", async (_, file, words) => {
    await expectModelError("bad-config", [words], () =>
      openHere({ weights: gpt2(), config: file }),
    );
  });
});

describe("JSON", () => {
  const limits = { depth: 8, values: 1000 };
  test("is what JSON.parse takes, apart from names that occur twice", () => {
    const plain = (value: unknown): unknown => {
      if (value instanceof Map)
        return Object.fromEntries([...value].map(([name, inner]) => [name, plain(inner)]));
      return Array.isArray(value) ? value.map(plain) : value;
    };
    for (const text of [
      '{"a":[1,-2.5e-3,true,false,null,"\\u00e9\\n\\ud83d\\ude00"],"b":{"c":{}},"":[]}',
      ' [ 0 , -0 , 1E5 ,"" , "x\\"y" ]\r\n\t',
      '"\u007f\u2028"',
    ])
      expect(plain(parseJson(text, limits))).toEqual(JSON.parse(text));
    for (const text of [
      "",
      "01",
      "+1",
      ".5",
      "1.",
      "tru",
      '"',
      "[1 2]",
      '{"a"}',
      "[,]",
      "\u00a01",
    ]) {
      expect(() => JSON.parse(text)).toThrow();
      expect(() => parseJson(text, limits), text).toThrow();
    }
  });
});
