// Plots leave as much room as their labels need: nothing is cut, wide or on a phone.
import { describe, expect, it } from "vitest";
import { barsScene } from "../../web/src/lib/bars.js";
import { dotsScene } from "../../web/src/lib/dots.js";
import { MARKS, type Mark, type Plot, plotScales, plotScene } from "../../web/src/lib/plot.js";
import { queryAt, plotScene as regressionScene } from "../../web/src/lib/plot_scene.js";
import { SAMPLE } from "../../web/src/lib/worked.js";
import { KEYS, TILES } from "../../web/src/mechanisms/flash/tiles.js";
import { tilesScene } from "../../web/src/mechanisms/flash/tiles_scene.js";
import { stickScene } from "../../web/src/mechanisms/stick_breaking/stick.js";
import { curve } from "../../web/src/training/curve.js";
import { regressionWords } from "../../web/src/training/regression/words.js";
import { expectInside, PALETTE, spanOf, textsOf } from "./pictures.js";

const LONG = "every token but the first";
const plot = (label: string, digits: number): Plot => ({
  x: { name: "length", log: false, min: 0, max: 10, ticks: [0, 5, 10], text: (x) => `${x}000` },
  y: { name: "time", log: false, min: 0, max: 1, ticks: [0, 1], text: (y) => y.toFixed(digits) },
  series: [
    {
      name: label,
      tone: "ink",
      points: [
        [0, 0],
        [10, 1],
      ],
    },
  ],
});

describe.each([350, 900])("on %d pixels", (width) => {
  it("numbers and names of lines are whole, however long", () => {
    for (const [label, digits] of [
      ["a", 0],
      [LONG, 0],
      ["a", 9],
      ["", 9],
    ] as const) {
      expectInside(plotScene(plot(label, digits), PALETTE, width, 300));
    }
  });

  it("lines with short labels are longer, begin below each other, and keep most of the width", () => {
    const ends = (label: string) => {
      const { px } = plotScales(plot(label, 1), width, 300);
      return [px(0), px(10)];
    };
    const [short, long] = [ends("a"), ends(LONG)];
    expect(short[0]).toBe(long[0]);
    expect((short[1] ?? 0) - (long[1] ?? 0)).toBeGreaterThan(80);
    expect(width - (long[1] ?? 0)).toBeLessThanOrEqual(0.35 * width);
    // A label that may still come has its room already.
    const later = plotScales({ ...plot("a", 1), labels: [LONG] }, width, 300);
    expect(later.px(10)).toBe(long[1]);
  });

  it("long names go on below, no two touch, and leaders lead to their lines", () => {
    const names = ["Longformer attention", "Scaled dot-product attention", "Nystrom", "plain"];
    const several: Plot = {
      ...plot("a", 1),
      leaders: true,
      letters: 18,
      series: names.map((name, at) => ({
        name,
        tone: "soft",
        mark: MARKS[at] as Mark,
        points: [
          [0, 0.4],
          [10, 0.5 + at / 1000],
        ],
      })),
    };
    const scene = plotScene(several, PALETTE, width, 300);
    expectInside(scene);
    const { px, py } = plotScales(several, width, 300);
    const labels = textsOf(scene).filter(({ x, anchor }) => anchor === "start" && x > px(10));
    expect(labels.map(({ text }) => text).sort()).toEqual(
      (width < 400
        ? ["Longformer", "Nystrom", "Scaled", "attention", "attention", "dot-product", "plain"]
        : ["Longformer", "Nystrom", "Scaled dot-product", "attention", "attention", "plain"]
      ).sort(),
    );
    const heights = labels.map(({ y }) => y).sort((a, b) => a - b);
    for (const [at, y] of heights.entries()) {
      if (at > 0) expect(y - (heights[at - 1] ?? 0)).toBeGreaterThanOrEqual(13.9);
    }
    const leaders = scene.shapes.filter(
      (shape) => shape.kind === "path" && (shape.points[0]?.[0] ?? 0) > px(10),
    );
    // Where folded names still take much of a phone, leaders go.
    if (width < 400) {
      expect(leaders).toHaveLength(0);
      return;
    }
    const ends = leaders.map((shape) => (shape.kind === "path" ? shape.points[0]?.[1] : 0));
    for (const { points } of several.series) {
      const end = py(points.at(-1)?.[1] ?? 0);
      expect(ends.some((y) => Math.abs((y ?? 0) - end) < 1e-6)).toBe(true);
    }
  });

  it("what stands behind bars and names beside dots are whole", () => {
    const bar = (name: string, value: number) => ({ name, value, text: `${value} bytes` });
    const groups = [
      { label: "multi-head", bars: [bar("each", 8), bar("per token", 9)] },
      { label: "none", bars: [bar("nothing is kept", 0)] },
    ];
    const bars = barsScene({ name: "bytes", groups }, PALETTE, width);
    expectInside(bars);
    const rects = bars.shapes.filter((shape) => shape.kind === "rect");
    const [first, second, none] = rects.map((rect) => rect.width);
    expect(second).toBeGreaterThan(50);
    expect(first).toBeCloseTo((8 / 9) * (second ?? 0), 9);
    expect(none).toBe(0);
    const rows = ["a", "scaled_dot_product_of_everything"].map((name, at) => ({
      name,
      value: 1 + 99 * at,
    }));
    const dots = { name: "time", rows, text: (value: number) => `${value}.000 µs`, chosen: "a" };
    expectInside(dotsScene(dots, PALETTE, width));
    expectInside(stickScene([0.1, 0.3, 0.5, 0], PALETTE, width));
  });

  it("the regression's queries are where its curve is drawn", () => {
    const count = SAMPLE.at.length;
    const result = {
      estimate: new Float32Array(count).fill(2),
      weights: new Float32Array(0),
      empty: Array.from({ length: count }, () => false),
    };
    const scene = regressionScene(result as never, PALETTE, width, 300, null);
    expectInside(scene);
    const curve = scene.shapes.findLast((shape) => shape.kind === "path");
    if (curve?.kind !== "path") throw new Error("no curve");
    expect(queryAt(curve.points[7]?.[0] ?? 0, width)).toBe(7);
    expect(queryAt(0, width)).toBeNull();
  });
});

describe("numbers along an axis", () => {
  const ticks = [128, 256, 512, 1024, 2048, 4096, 8192];
  const x = { name: "tokens", log: true, min: 128, max: 8192, ticks, text: String };
  const shown = (width: number) => {
    const { y, series } = plot("", 0);
    const scene = plotScene({ x, y, series: [...series] }, PALETTE, width, 300);
    const all = textsOf(scene).filter(({ text }) => ticks.map(String).includes(text));
    return all.sort((a, b) => a.x - b.x);
  };

  it("are all there where there is room", () => {
    expect(shown(900).map(({ text }) => Number(text))).toEqual(ticks);
  });

  it("are every second or third on a narrow plot, and the last; none touches another", () => {
    const few = shown(200);
    expect(few.length).toBeLessThan(ticks.length);
    expect(few.map(({ text }) => text)).toEqual(["128", "512", "2048", "8192"]);
    for (const [at, text] of few.entries()) {
      const before = few[at - 1];
      if (before) expect(spanOf(text)[0]).toBeGreaterThan(spanOf(before)[1]);
    }
  });
});

it.each([240, 288, 900])("names of axes are inside on %d pixels", (width) => {
  const { x, y, series } = plot(LONG, 0);
  const names = ["keys read, mean of all queries of it", "weight that goes elsewhere, in percent"];
  const [across = "", up = ""] = names;
  const named = { x: { ...x, name: across }, y: { ...y, name: up }, series };
  const scene = plotScene(named, PALETTE, width, 300);
  expectInside(scene);
  const texts = textsOf(scene).map(({ text }) => text);
  if (width > 288) expect(texts).toEqual(expect.arrayContaining(names));
  else expect(texts.filter((text) => /^(keys|weight) .*…?$/.test(text))).toHaveLength(2);
});

describe("lines that have only begun", () => {
  it("are a dot where there is one point, and have no name where there is none", () => {
    const { x, y } = plot("", 0);
    const line = (name: string, points: readonly [number, number][]) =>
      ({ name, points, tone: "ink" }) as const;
    const series = [
      line("one", [[5, 0.5]]),
      line("none", []),
      line("not a number", [[5, Number.NaN]]),
    ];
    const scene = plotScene({ x, y, series }, PALETTE, 600, 300);
    const texts = textsOf(scene).map(({ text }) => text);
    expect(texts).toContain("one");
    expect(texts).not.toContain("none");
    expect(texts).not.toContain("not a number");
    expect(scene.shapes.filter(({ kind }) => kind === "dot")).toHaveLength(1);
  });

  it("a training's lines have no names before its first step", () => {
    const look = { step: 0, accuracy: 0.1, heldOut: 0.55 };
    const point = { step: 1, loss: 0.5, gradientNorm: 1, learningRate: 0.1, milliseconds: 2 };
    for (const measure of regressionWords.measures) {
      const names = (points: readonly (typeof point)[]) =>
        textsOf(
          plotScene(curve(measure, 100, points as never, [look], null), PALETTE, 600, 280),
        ).map(({ text }) => text);
      expect(names([])).not.toContain("new");
      expect(names([])).not.toContain("model");
      if (measure.id === "loss") expect(names([point])).toContain("new");
    }
  });

  it("the estimate has no name where every query is empty", () => {
    const count = SAMPLE.at.length;
    const texts = (empty: boolean) => {
      const result = {
        estimate: new Float32Array(count).fill(2),
        weights: new Float32Array(0),
        empty: Array.from({ length: count }, () => empty),
      };
      const scene = regressionScene(result as never, PALETTE, 600, 300, null);
      return textsOf(scene).map(({ text }) => text);
    };
    expect(texts(false)).toContain("estimate");
    expect(texts(true)).not.toContain("estimate");
  });
});

it.each([288, 358, 900])("the running maximum's name is whole on %d pixels", (width) => {
  const rising = (count: number) => Array.from({ length: count }, (_, at) => 0.3 * at - 1);
  const walk = {
    scores: rising(KEYS),
    max: rising(TILES),
    sum: rising(TILES).map((value) => value + 2),
    rescale: rising(TILES).map(() => 0.5),
  };
  for (let step = 0; step < TILES; step++) {
    const scene = tilesScene(walk as never, step, PALETTE, width);
    expectInside(scene);
    const label = textsOf(scene).find(({ text }) => text === "running max m");
    if (!label) throw new Error("the line has no name");
    const title = textsOf(scene).find(({ text }) => text === "score of each key");
    expect(label.y - (title?.y ?? 0)).toBeGreaterThanOrEqual(label.size);
    const ticks = textsOf(scene).filter(({ anchor }) => anchor === "end");
    expect(ticks).toHaveLength(2);
    for (const tick of ticks) expect(spanOf(label)[0]).toBeGreaterThan(spanOf(tick)[1]);
    // Where there is room it stands on what has been read, not on the hatching; else it has a halo.
    const [hatched] = scene.shapes.filter(({ kind }) => kind === "hatch") as { x: number }[];
    const [left, right] = spanOf(label);
    if (hatched && right - left + 60 < hatched.x) expect(right).toBeLessThan(hatched.x);
    expect(label.halo?.colour).toBe(PALETTE.background);
    const sum = textsOf(scene).find(({ text }) => text === "running sum ℓ");
    const crossing = scene.shapes.filter(
      (shape) =>
        shape.kind === "path" &&
        Math.min(...shape.points.map(([, y]) => y)) < (sum?.y ?? 0) &&
        Math.max(...shape.points.map(([, y]) => y)) > (sum?.y ?? 0),
    );
    expect(crossing).toEqual([]);
  }
});
