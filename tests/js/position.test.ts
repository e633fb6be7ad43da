import { readFileSync } from "node:fs";
import { type Heed, load } from "heed";
import { beforeAll, describe, expect, it } from "vitest";
import { expectClose, expectError, randomData, root, size } from "./support.js";

const MAX_ERROR = Number(
  /kRopeMaxError = ([0-9.e-]+);/.exec(
    readFileSync(`${root}cpp/include/heed/position.h`, "utf8"),
  )?.[1],
);

let heed: Heed;
beforeAll(async () => {
  heed = await load();
});

const ones = (shape: number[]) => ({ data: new Float32Array(size(shape)).fill(1), shape });

describe("rope", () => {
  const x = randomData([2, 3, 9, 8], 1);

  it.each([
    [{ pairing: "half" }, { pairing: "half" }],
    [
      { pairing: "interleaved", offset: [5, -3], rotaryDim: 6, base: 500000 },
      { pairing: "interleaved", positionOffset: [5, -3], rotaryDim: 6, base: 500000 },
    ],
    [
      { pairing: "half", scaling: { type: "yarn", factor: 4, originalLen: 64, betaFast: 16 } },
      { pairing: "half", scaling: "yarn", scalingFactor: 4, originalLen: 64, betaFast: 16 },
    ],
    [
      { pairing: "half", image: { height: 3, width: 3 }, inverse: true },
      { pairing: "half", imageHeight: 3, imageWidth: 3, inverse: true },
    ],
  ] as const)("matches run() and the float64 reference with %j", async (options, params) => {
    const got = heed.rope(x, options as never) as { data: Float32Array; shape: number[] };
    const { output } = await heed.reference("rope", { x }, params);
    expect(got.shape).toEqual(x.shape);
    // Numbers are below 1, pairs below sqrt 2, YaRN's factor below 1.2.
    expectClose("output", got.data, output.data, 2 * MAX_ERROR);
    expect(got.data).toEqual(heed.run("rope", { x }, params).output.data);
  });

  it("sees every rank and layout alike", () => {
    const options = { pairing: "half", offset: 3 } as const;
    const flat = heed.rope({ data: x.data.slice(0, 72), shape: [9, 8] }, options);
    const batch = heed.rope({ data: x.data.slice(0, 72), shape: [1, 9, 8] }, options);
    expect(flat.shape).toEqual([9, 8]);
    expect(batch.shape).toEqual([1, 9, 8]);
    expect(batch.data).toEqual(flat.data);
    // The rows of [1, 9, 2, 8] in the order "blhd" are those of two heads.
    const pairs = { data: x.data.slice(0, 144), shape: [1, 9, 2, 8] };
    const blhd = heed.rope(pairs, { ...options, layout: "blhd" });
    expect(blhd.shape).toEqual([1, 9, 2, 8]);
    for (let i = 0; i < 9; i++) {
      const row = { data: x.data.slice(i * 16 + 8, i * 16 + 16), shape: [1, 8] };
      const alone = heed.rope(row, { pairing: "half", offset: 3 + i });
      expect(blhd.data.slice(i * 16 + 8, i * 16 + 16)).toEqual(alone.data);
    }
  });

  it("takes positions per row and per batch entry", () => {
    const rows = heed.rope(ones([2, 3, 4]), {
      pairing: "half",
      positions: [
        [7, 0, 1],
        [2, 7, 0],
      ],
    });
    const at = (position: number) =>
      heed.rope(ones([1, 4]), { pairing: "half", offset: position }).data;
    [7, 0, 1, 2, 7, 0].forEach((position, i) => {
      expect(rows.data.slice(4 * i, 4 * i + 4)).toEqual(at(position));
    });
  });

  it("stays right at position 1e6", () => {
    const turned = heed.rope(
      { data: Float32Array.of(1, 0), shape: [1, 2] },
      {
        pairing: "half",
        offset: 1000003,
      },
    );
    expectClose("pair", turned.data, [Math.cos(1000003), Math.sin(1000003)], MAX_ERROR);
  });

  it("returns a Tensor for a Tensor", () => {
    const before = heed.memory().tensors;
    const tensor = heed.tensor(x.data, x.shape);
    const turned = heed.rope(tensor, { pairing: "half" });
    expect(Array.from(turned.data)).toEqual(Array.from(heed.rope(x, { pairing: "half" }).data));
    turned.dispose();
    tensor.dispose();
    expect(heed.memory().tensors).toBe(before);
  });

  it("calls no methods of its lists, whose errors are no trap", () => {
    const offset = [0, 0];
    offset.map = () => {
      throw new Error("not to be called");
    };
    const { data } = heed.rope(x, { pairing: "half", offset, scaling: { type: "none" } });
    expect(data).toEqual(heed.rope(x, { pairing: "half" }).data);
  });

  it("names what is wrong", () => {
    const rope = heed.rope as unknown as (x: unknown, options?: unknown) => unknown;
    const half = { pairing: "half" };
    expectError("option", ["pairing", "half", "interleaved"], () => rope(x));
    expectError("option", ["pairing"], () => rope(x, { pairing: "neox" }));
    expectError("option", ["rotaryDimm", "rotaryDim"], () => rope(x, { ...half, rotaryDimm: 4 }));
    expectError("range", ["rotaryDim"], () => rope(x, { ...half, rotaryDim: 3 }));
    expectError("range", ["offset: got 0.5"], () => rope(x, { ...half, offset: 0.5 }));
    expectError("option", ["offset[0]"], () => rope(x, { ...half, offset: new Array(2) }));
    const scaled = (scaling: object) => () => rope(x, { ...half, scaling });
    expectError("range", ["scaling.factor: got -1"], scaled({ type: "ntk", factor: -1 }));
    expectError("option", ["scaling.factor is missing"], scaled({ type: "ntk" }));
    expectError("option", ["scaling.betaFast", "yarn"], scaled({ type: "linear", betaFast: 3 }));
    expectError("range", ["image.height"], () =>
      rope(x, { ...half, image: { height: 0.5, width: 18 } }),
    );
    expectError("option", ["scaling.type"], () => rope(x, { ...half, scaling: { factor: 2 } }));
    expectError("option", ["scaling"], () => rope(x, { ...half, scaling: "yarn" }));
    expectError("option", ["originalLen"], () =>
      rope(x, { ...half, scaling: { type: "yarn", factor: 2 } }),
    );
    expectError("shape", ["positions"], () => rope(x, { ...half, positions: [1, 2] }));
    expectError("shape", ["image"], () => rope(x, { ...half, image: { height: 2, width: 3 } }));
    expectError("option", ["sin"], () => rope(x, { ...half, cos: ones([9, 4]) }));
    expectError("shape", ["x"], () => rope({ data: new Float32Array(4), shape: [4] }, half));
  });
});

describe("xpos", () => {
  it("decays with the distance of query and key", () => {
    const options = { pairing: "interleaved", scaleBase: 20 } as const;
    const q = heed.xpos(ones([40, 2]), { ...options, side: "query" }).data;
    const k = heed.xpos(ones([40, 2]), { ...options, side: "key", center: 0 }).data;
    const dot = (i: number, j: number) =>
      [0, 1].reduce((sum, d) => sum + (q[2 * i + d] ?? 0) * (k[2 * j + d] ?? 0), 0);
    expect(dot(30, 10)).toBeCloseTo((2 * Math.cos(20) * 0.4) / 1.4, 5);
    expect(dot(20, 0)).toBeCloseTo(dot(39, 19), 5);
  });

  it("needs a side", () => {
    const xpos = heed.xpos as unknown as (x: unknown, options: unknown) => unknown;
    expectError("option", ["side", "query"], () => xpos(ones([2, 4]), { pairing: "half" }));
  });
});

describe("sinusoidal", () => {
  it("is the table of the paper", () => {
    const { data, shape } = heed.sinusoidal(50, 6, { offset: 2 });
    expect(shape).toEqual([50, 6]);
    for (let i = 0; i < 50; i++) {
      for (let d = 0; d < 6; d++) {
        const angle = (i + 2) / 10000 ** (Math.floor(d / 2) / 3);
        const wanted = d % 2 === 0 ? Math.sin(angle) : Math.cos(angle);
        expect(Math.abs((data[i * 6 + d] ?? NaN) - wanted)).toBeLessThan(1e-7);
      }
    }
  });

  it("names what is wrong", () => {
    expectError("range", ["len"], () => heed.sinusoidal(-1, 4));
    expectError("range", ["dim"], () => heed.sinusoidal(1, 4.5));
    expectError("range", ["base"], () => heed.sinusoidal(1, 4, { base: 0 }));
    expectError("option", ["offset: got [1]"], () =>
      heed.sinusoidal(2, 2, { offset: [1] as never }),
    );
    expectError("option", ["spacing"], () => heed.sinusoidal(1, 4, { spacing: "wide" as "open" }));
  });
});

describe("learnedPosition", () => {
  const table = { data: Float32Array.of(1, 10, 2, 20, 3, 30), shape: [3, 2] };

  it("looks rows up, or stretches the table", () => {
    expect(Array.from(heed.learnedPosition(ones([1, 2]), table, { offset: 2 }).data)).toEqual([
      4, 31,
    ]);
    const zeros = { data: new Float32Array(12), shape: [6, 2] };
    const stretched = heed.learnedPosition(zeros, table, { interpolate: true });
    expectClose(
      "rows",
      stretched.data,
      [1, 10, 1.25, 12.5, 1.75, 17.5, 2.25, 22.5, 2.75, 27.5, 3, 30],
      1e-5,
    );
  });

  it("refuses positions beyond the table", () => {
    expectError("range", ["3 rows"], () => heed.learnedPosition(ones([4, 2]), table));
    expectError("shape", ["table"], () => heed.learnedPosition(ones([1, 3]), table));
  });
});

describe("t5Bucket", () => {
  it("is that of C++", () => {
    const bucket = (relative: number) => heed.t5Bucket(relative, { direction: "bidirectional" });
    expect([0, -1, 1, -8, -16, -64, 128, -1e9].map(bucket)).toEqual([0, 1, 17, 8, 10, 14, 31, 15]);
    expect(heed.t5Bucket(-19, { direction: "causal" })).toBe(17);
  });

  it("names what is wrong", () => {
    const t5 = heed.t5Bucket.bind(heed) as unknown as (p: unknown, options?: unknown) => unknown;
    expectError("option", ["direction"], () => t5(0));
    expectError("range", ["relativePosition"], () => t5(0.5, { direction: "causal" }));
    expectError("range", ["2^53 - 1"], () => t5(-(2 ** 53), { direction: "causal" }));
    expectError("range", ["numBuckets"], () => t5(0, { direction: "causal", numBuckets: 1 }));
  });
});
