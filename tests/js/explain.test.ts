import {
  type AttentionOptions,
  documentsFromCuSeqlens,
  type ExplainSizes,
  type Heed,
  keepFromCoo,
  keepFromCsr,
  load,
} from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { expectError, randomData } from "./support.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

/** Rows of x and . for one head: the drawings of cpp/include/heed/keep.h. */
const drawn = (rows: string): number[] =>
  rows
    .replaceAll(/\s+/g, "")
    .split("")
    .map((cell) => (cell === "x" ? 1 : 0));

/** The picture that a rule draws cell by cell. */
const cells = (
  [batch, heads, qLen, kvLen]: readonly number[],
  sees: (b: number, h: number, i: number, j: number) => boolean,
): number[] => {
  const picture: number[] = [];
  for (let b = 0; b < (batch as number); b++) {
    for (let h = 0; h < (heads as number); h++) {
      for (let i = 0; i < (qLen as number); i++) {
        for (let j = 0; j < (kvLen as number); j++) picture.push(sees(b, h, i, j) ? 1 : 0);
      }
    }
  }
  return picture;
};

interface Case {
  name: string;
  options: AttentionOptions;
  sizes: ExplainSizes;
  picture: number[];
}

const five: ExplainSizes = { qLen: 5 };
const four: ExplainSizes = { qLen: 4 };
const ids = [0, 0, 1, 1, -1];

const CASES: Case[] = [
  { name: "nothing", options: {}, sizes: { qLen: 2, kvLen: 3 }, picture: Array(6).fill(1) },
  {
    name: "causal at the end",
    options: { causal: true, queryOffset: "end" },
    sizes: { batch: 2, numHeads: 2, qLen: 3, kvLen: 5 },
    picture: cells([2, 2, 3, 5], (_b, _h, i, j) => j <= i + 2),
  },
  {
    name: "window",
    options: { window: { left: 1, right: 2 } },
    sizes: five,
    picture: cells([1, 1, 5, 5], (_b, _h, i, j) => j >= i - 1 && j <= i + 2),
  },
  {
    name: "lengths",
    options: { keyLengths: new Int32Array([3, 0]) },
    sizes: { batch: 2, numHeads: 2, qLen: 2, kvLen: 4 },
    picture: cells([2, 2, 2, 4], (b, _h, _i, j) => j < (b === 0 ? 3 : 0)),
  },
  {
    name: "documents",
    options: { queryDocuments: new Int32Array(ids), keyDocuments: new Int32Array(ids) },
    sizes: five,
    picture: cells([1, 1, 5, 5], (_b, _h, i, j) => ids[i] === ids[j] && (ids[i] as number) >= 0),
  },
  {
    name: "prefix",
    options: { prefixLengths: new Int32Array([2]) },
    sizes: four,
    picture: cells([1, 1, 4, 4], (_b, _h, i, j) => j < 2 || j <= i),
  },
  {
    name: "block keep",
    options: {
      blockKeep: [
        [true, false],
        [true, true],
      ],
      blockSize: 2,
    },
    sizes: four,
    picture: drawn("xx.. xx.. xxxx xxxx"),
  },
  {
    name: "block rows in CSR, blocks of two sizes",
    options: {
      blockIndptr: new Int32Array([0, 1, 3]),
      blockIndices: new Int32Array([1, 0, 2]),
      blockSize: [2, 1],
    },
    sizes: { qLen: 4, kvLen: 3 },
    picture: drawn(".x. .x. x.x x.x"),
  },
  {
    name: "dilated",
    options: { pattern: "dilated", reach: 1, dilation: 2 },
    sizes: five,
    picture: drawn("x.x.. .x.x. x.x.x .x.x. ..x.x"),
  },
  {
    name: "dilated, a step per head",
    options: { pattern: "dilated", reach: 1, dilation: [1, 2] },
    sizes: { ...five, numHeads: 2 },
    picture: drawn("xx... xxx.. .xxx. ..xxx ...xx x.x.. .x.x. x.x.x .x.x. ..x.x"),
  },
  {
    name: "longformer",
    options: { pattern: "longformer", reach: 1, globalTokens: new Int32Array([0]) },
    sizes: five,
    picture: drawn("xxxxx xxx.. xxxx. x.xxx x..xx"),
  },
  {
    name: "bigbird",
    options: {
      pattern: "bigbird",
      blockSize: 1,
      windowBlocks: 1,
      globalBlocks: 1,
      randomBlocks: 1,
      patternSeed: 0,
    },
    sizes: five,
    picture: drawn("xxxxx xxx.. x.x.x xx.x. x.x.x"),
  },
  {
    name: "bigbird with the last block",
    options: {
      pattern: "bigbird",
      blockSize: 1,
      windowBlocks: 1,
      globalBlocks: 1,
      lastBlocks: 1,
      randomBlocks: 1,
    },
    sizes: five,
    picture: drawn("xxxxx xxx.x x.x.x xx.xx xxxxx"),
  },
  {
    name: "strided",
    options: { pattern: "strided", stride: 2 },
    sizes: five,
    picture: drawn("x.... xx... xxx.. .xxx. x.xxx"),
  },
  {
    name: "fixed",
    options: { pattern: "fixed", stride: 2, summary: 1 },
    sizes: five,
    picture: drawn("x.... xx... .xx.. .xxx. .x.xx"),
  },
  {
    name: "axial",
    options: { pattern: "axial", grid: [2, 3], axis: 0 },
    sizes: { qLen: 6 },
    picture: cells([1, 1, 6, 6], (_b, _h, i, j) => i % 3 === j % 3),
  },
  {
    name: "swin_window",
    options: { pattern: "swin_window", grid: [1, 4], windowSize: [1, 2], shift: [0, 1] },
    sizes: four,
    picture: drawn("x... .xx. .xx. ...x"),
  },
  {
    name: "neighborhood",
    options: { pattern: "neighborhood", grid: [5], windowSize: 3 },
    sizes: five,
    picture: drawn("xxx.. xxx.. .xxx. ..xxx ..xxx"),
  },
  {
    name: "pairs",
    options: {
      keepPairs: [
        [0, 1],
        [2, 0],
        [2, 0],
      ],
    },
    sizes: { qLen: 3, kvLen: 2 },
    picture: drawn(".x .. x."),
  },
  {
    name: "keep",
    options: { keep: [[true, false, true]] },
    sizes: { qLen: 2, kvLen: 3 },
    picture: drawn("x.x x.x"),
  },
  {
    name: "a bias of minus infinity",
    options: { bias: [[0, -Infinity, 5]] },
    sizes: { qLen: 2, kvLen: 3 },
    picture: drawn("x.x x.x"),
  },
  {
    name: "keepMod",
    options: { keepMod: "(kvIndex + step[h]) % 2 == 0", captured: { step: [0, 1] } },
    sizes: { numHeads: 2, qLen: 2, kvLen: 3 },
    picture: drawn("x.x x.x .x. .x."),
  },
  {
    name: "all of a few rules at once",
    options: { causal: true, window: { left: 2 }, keep: [[false, true, true, true]] },
    sizes: four,
    picture: drawn(".... .x.. .xx. .xxx"),
  },
];

describe("heed.explain", () => {
  it.each(CASES)("draws $name, and attention sees the same", ({ options, sizes, picture }) => {
    const shown = heed.explain(options, sizes);
    const { batch = 1, numHeads = 1, qLen, kvLen = qLen } = sizes;
    expect(shown.shape).toEqual([batch, numHeads, qLen, kvLen]);
    expect(shown.dtype).toBe("uint8");
    expect(Array.from(shown.data)).toEqual(picture);
    const q = randomData([batch, numHeads, qLen, 4], 1);
    const k = randomData([batch, numHeads, kvLen, 4], 2);
    const { weights } = heed.attention(q, k, k, { ...options, returnWeights: true });
    expect(Array.from(weights.data, (weight) => (weight > 0 ? 1 : 0))).toEqual(picture);
  });

  it("draws a mechanism by id, with or without values", () => {
    const [q, k] = [randomData([1, 4, 6, 8], 1), randomData([1, 2, 6, 8], 2)];
    const params = { reach: 1, causal: true };
    const inputs = { q, k, globalTokens: new Int32Array([2]) };
    const picture = heed.explain("longformer", inputs, params);
    const wanted = cells(
      [1, 4, 6, 6],
      (_b, _h, i, j) => (Math.abs(i - j) <= 1 || i === 2 || j === 2) && j <= i,
    );
    expect(Array.from(picture.data)).toEqual(wanted);
    expect(heed.explain("longformer", { ...inputs, v: k }, params).data).toEqual(picture.data);
    const rows = heed.explain("block_sparse", { q, k }, { pattern: "strided", stride: 2 });
    expect(rows.shape).toEqual([1, 4, 6, 6]);
    const blhd = { q: randomData([1, 6, 4, 8], 1), k: randomData([1, 6, 2, 8], 1) };
    expect(heed.explain("attention", blhd, { layout: "blhd" }).shape).toEqual([1, 4, 6, 6]);
  });

  it("gives a Tensor when an option is one, and frees what it copies", () => {
    const before = heed.memory();
    const keep = heed.tensor([true, false], [1, 2]);
    const picture = heed.explain({ keep }, { qLen: 2, kvLen: 2 });
    expect(Array.from(picture.data)).toEqual([1, 0, 1, 0]);
    picture.dispose();
    keep.dispose();
    heed.explain({ keep: [[true, false]] }, { qLen: 2, kvLen: 2 });
    expect(heed.memory().tensors).toBe(before.tensors);
  });

  it("ignores options that hide nothing, but knows their names", () => {
    const options = {
      scale: 2,
      softcap: 3,
      sinks: [0],
      alibiSlopes: [1],
      returnLse: true,
      scoreMod: "score + far[h]",
      captured: { far: [1] },
    } as const;
    expect(Array.from(heed.explain(options, { qLen: 1, kvLen: 2, numHeads: 1 }).data)).toEqual([
      1, 1,
    ]);
    expectError("option", ["casual", "did you mean `causal`"], () =>
      heed.explain({ casual: true } as never, { qLen: 2 }),
    );
  });

  it("names what is wrong in JavaScript's words", () => {
    const explain = (options: unknown, sizes: unknown) => () =>
      heed.explain(options as never, sizes as never);
    expectError("option", ["options"], explain(undefined, { qLen: 2 }));
    expectError("option", ["sizes.qLen"], explain({}, {}));
    expectError("range", ["sizes.kvLen", "-1"], explain({}, { qLen: 2, kvLen: -1 }));
    expectError("range", ["sizes.qLen", "2^31"], explain({}, { qLen: 2 ** 33, kvLen: 0 }));
    expectError("option", ["sizes", "`qlen`", "qLen"], explain({}, { qlen: 2 }));
    expectError("memory", ["picture"], explain({}, { qLen: 2 ** 17, kvLen: 2 ** 17 }));
    expectError("option", ["queryOffset"], explain({ causal: true }, { qLen: 2, kvLen: 3 }));
    const offGrid = { pattern: "neighborhood", grid: [2, 2], windowSize: 3 };
    expectError("range", ["windowSize"], explain(offGrid, { qLen: 4 }));
    const even = { pattern: "bigbird", windowBlocks: 2 };
    expectError("range", ["windowBlocks", "odd"], explain(even, { qLen: 4 }));
    const prefix = { prefixLengths: [1] };
    expectError("option", ["queryOffset"], explain(prefix, { qLen: 2, kvLen: 3 }));
    expectError("option", ["keyDocuments"], explain({ queryDocuments: [0, 0] }, { qLen: 2 }));
    expectError("option", ["pattern", '"strided"'], explain({ pattern: "stride" }, { qLen: 2 }));
    expectError("unsupported", ["rope", "no keep rules"], () =>
      heed.explain("rope", { x: randomData([1, 1, 2, 4], 1) }, { pairing: "half" }),
    );
    expectError("option", ["unknown mechanism"], () => heed.explain("nothing", {}));
    expect(heed.explain({}, { qLen: 0, kvLen: 3 }).shape).toEqual([1, 1, 0, 3]);
  });
});

describe("sparse matrices", () => {
  it("become a keep from COO and from CSR", () => {
    const wanted = [0, 1, 0, 0, 0, 0, 1, 0, 1];
    const coo = keepFromCoo([0, 2, 2, 2], new Int32Array([1, 2, 0, 0]), [3, 3]);
    expect(Array.from(coo.data)).toEqual(wanted);
    expect(coo.shape).toEqual([3, 3]);
    const csr = keepFromCsr([0, 1, 1, 3], [1, 2, 0], [3, 3]);
    expect(Array.from(csr.data)).toEqual(wanted);
    const sizes = { qLen: 3 };
    expect(Array.from(heed.explain({ keep: csr }, sizes).data)).toEqual(wanted);
    const lists = { blockIndptr: [0, 1, 1, 3], blockIndices: [1, 2, 0], blockSize: 1 };
    expect(Array.from(heed.explain(lists, sizes).data)).toEqual(wanted);
    const pairs = [
      [0, 1],
      [2, 2],
      [2, 0],
    ];
    expect(Array.from(heed.explain({ keepPairs: pairs }, sizes).data)).toEqual(wanted);
    expect(heed.keepFromCoo).toBe(keepFromCoo);
    expect(heed.keepFromCsr).toBe(keepFromCsr);
    expect(Array.from(keepFromCoo([], [], [0, 4]).data)).toEqual([]);
  });

  it("are refused with the place of the mistake", () => {
    expectError("shape", ["cols", "1", "2"], () => keepFromCoo([0, 1], [0], [2, 2]));
    expectError("range", ["cols[1]", "2", "0 to 1"], () => keepFromCoo([0, 1], [0, 2], [2, 2]));
    expectError("range", ["rows[0]", "-1"], () => keepFromCoo([-1], [0], [2, 2]));
    expectError("shape", ["shape", "[qLen, kvLen]"], () => keepFromCoo([0], [0], [2] as never));
    expectError("memory", ["keep"], () => keepFromCoo([], [], [2 ** 20, 2 ** 20]));
    expectError("shape", ["indptr", "3"], () => keepFromCsr([0, 1], [0], [2, 2]));
    expectError("range", ["indptr[2]", "0"], () => keepFromCsr([0, 1, 0], [0], [2, 2]));
    expectError("range", ["indptr[0]"], () => keepFromCsr([1, 1, 1], [0], [2, 2]));
    expectError("range", ["indices[0]", "5"], () => keepFromCsr([0, 1, 1], [5], [2, 2]));
  });
});

describe("documentsFromCuSeqlens", () => {
  it("numbers the documents, and pads", () => {
    expect(Array.from(documentsFromCuSeqlens([0, 3, 3, 5]).data)).toEqual([0, 0, 0, 2, 2]);
    const ids = documentsFromCuSeqlens(new Int32Array([0, 2]), 4);
    expect(Array.from(ids.data)).toEqual([0, 0, -1, -1]);
    const options = { queryDocuments: ids, keyDocuments: ids };
    expect(Array.from(heed.explain(options, { qLen: 4 }).data)).toEqual(
      drawn("xx.. xx.. .... ...."),
    );
    expect(heed.documentsFromCuSeqlens).toBe(documentsFromCuSeqlens);
  });

  it("refuses what is no list of offsets", () => {
    expectError("range", ["cuSeqlens[0]", "1"], () => documentsFromCuSeqlens([1, 2]));
    expectError("range", ["cuSeqlens[2]", "1"], () => documentsFromCuSeqlens([0, 2, 1], 3));
    expectError("range", ["cuSeqlens[1]", "4"], () => documentsFromCuSeqlens([0, 4], 3));
    expectError("range", ["len", "-1"], () => documentsFromCuSeqlens([0], -1));
  });
});
