// The address of the model's page, and how much of a text it reads and shows.
import { expect, test } from "vitest";
import type { ModelFacts } from "../../web/src/model/model_types.js";
import {
  lastOf,
  mostRead,
  promptOf,
  shownLayers,
  spread,
} from "../../web/src/model_page/extent.js";
import { DEFAULTS, fragmentOf, type PageState, stateOf } from "../../web/src/model_page/link.js";

const SET: PageState = {
  text: "Und Adam & Eva #1 = 100 %\n",
  sampling: { temperature: 0, topK: 100, seed: 2 ** 31 - 1 },
  looks: "rollout",
  head: { layer: 2, head: 3 },
  order: "distance",
  token: 0,
  pin: { row: 4, column: 1 },
  arcs: true,
  out: [
    { layer: 0, head: 1 },
    { layer: 3, head: 0 },
  ],
};

test("a link says what differs, and is read as it was written", () => {
  expect(fragmentOf(DEFAULTS)).toBe("");
  expect(stateOf("")).toEqual(DEFAULTS);
  expect(stateOf(fragmentOf(SET))).toEqual(SET);
  expect(fragmentOf({ ...DEFAULTS, head: { layer: 1, head: 0 } })).toBe("#v=1&head=2%2C1");
  expect(stateOf(fragmentOf({ ...SET, text: "" })).text).toBe("");
});

test.each([
  ["no version", "#text=other"],
  ["another version", "#v=2&text=other"],
  ["numbers out of range", "#v=1&T=1.6&k=101&seed=-1&token=0"],
  ["fractions of whole numbers", "#v=1&k=1.5&seed=0.5&token=1.5"],
  ["empty numbers", "#v=1&T=&k=+&seed="],
  [
    "no numbers",
    "#v=1&T=NaN&k=1e999&seed=0x&look=hope&head=1&order=size&pin=0,1&arcs=yes&out=.1,0.a",
  ],
  ["three places", "#v=1&head=1,2,3&pin=1,2,3"],
  ["more than a link has", `#v=1&seed=7&text=${"a".repeat(40_000)}`],
])("of a link with %s nothing is taken", (_, fragment) => {
  expect(stateOf(fragment)).toEqual(DEFAULTS);
});

test("a text is cut to what the page takes, whose longest fits in any script", () => {
  expect(stateOf(`#v=1&text=${"a".repeat(5000)}`).text).toHaveLength(4000);
  const text = "\u6ce8".repeat(4000);
  expect(stateOf(fragmentOf({ ...SET, text }))).toEqual({ ...SET, text });
  expect(fragmentOf({ ...SET, text: text + text })).toBe("");
});

const MODEL: ModelFacts = {
  style: "gpt2",
  numLayers: 8,
  numHeads: 8,
  numKvHeads: 8,
  headDim: 2,
  embedDim: 16,
  vocabSize: 10,
  contextLength: 1024,
  numParameters: 1,
  dtype: "F32",
  hasTokenizer: false,
  endTokens: [],
};

test("heads of all layers are held while they fit, else those of one", () => {
  // 4 bytes x 8 layers x (8 heads and their mean) x len^2 against 256 MB.
  expect(shownLayers(MODEL, 942, 5)).toBe("all");
  expect(shownLayers(MODEL, 943, 5)).toEqual([5]);
  expect(mostRead(MODEL)).toBe(1024);
  expect(mostRead({ ...MODEL, contextLength: 40 })).toBe(40);
  // 4 bytes x (128 heads and their mean) x len^2.
  expect(mostRead({ ...MODEL, numHeads: 128 })).toBe(704);
});

test("a prompt leaves room for what is written, and keeps the beginning", () => {
  const short = { ...MODEL, contextLength: 10 };
  expect(promptOf(short, 10, 80)).toEqual({ kept: 6, maxTokens: 5 });
  expect(promptOf(short, 3, 80)).toEqual({ kept: 3, maxTokens: 5 });
  expect(lastOf([0, 1, 2, 3, 4], 3, 1)).toEqual([0, 3, 4]);
  expect([...spread([5, 6, 7], 5, 3, 1)]).toEqual([5, 0, 0, 6, 7]);
});
