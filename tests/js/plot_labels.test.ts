// Plots leave as much room as their labels need: nothing is cut, wide or on a phone.
import { describe, expect, it } from "vitest";
import { barsScene } from "../../web/src/lib/bars.js";
import { dotsScene } from "../../web/src/lib/dots.js";
import type { Palette } from "../../web/src/lib/palette.js";
import { MARKS, type Mark, type Plot, plotScales, plotScene } from "../../web/src/lib/plot.js";
import { queryAt, plotScene as regressionScene } from "../../web/src/lib/plot_scene.js";
import type { Scene, TextShape } from "../../web/src/lib/scene.js";
import { textWidth } from "../../web/src/lib/text_width.js";
import { SAMPLE } from "../../web/src/lib/worked.js";
import { stickScene } from "../../web/src/mechanisms/stick_breaking/stick.js";

const tones = { query: "q", key: "k", value: "v", output: "o" };
const PALETTE = {
  background: "white",
  ink: "black",
  soft: "grey",
  faint: "faint",
  hatch: "hatch",
  roleText: tones,
  ramps: { key: ["k"], value: ["v"], output: ["o"], query: ["q"] },
} as unknown as Palette;

const textsOf = ({ shapes }: Scene) =>
  shapes.filter((shape): shape is TextShape => shape.kind === "text");

function spanOf({ x, text, size, bold, anchor }: TextShape): [number, number] {
  const wide = textWidth(text, size, bold);
  const left = { start: x, middle: x - wide / 2, end: x - wide }[anchor];
  return [left, left + wide];
}

function expectInside(scene: Scene): void {
  const texts = textsOf(scene);
  expect(texts.length).toBeGreaterThan(3);
  for (const text of texts) {
    const [left, right] = spanOf(text);
    expect(left, text.text).toBeGreaterThanOrEqual(0);
    expect(right, text.text).toBeLessThanOrEqual(scene.width);
  }
}

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

  it("lines with short labels are longer, and begin below each other", () => {
    const ends = (label: string) => {
      const { px } = plotScales(plot(label, 1), width, 300);
      return [px(0), px(10)];
    };
    const [short, long] = [ends("a"), ends(LONG)];
    expect(short[0]).toBe(long[0]);
    expect((short[1] ?? 0) - (long[1] ?? 0)).toBeGreaterThan(100);
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
      ["Longformer", "Nystrom", "Scaled dot-product", "attention", "attention", "plain"].sort(),
    );
    const heights = labels.map(({ y }) => y).sort((a, b) => a - b);
    for (const [at, y] of heights.entries()) {
      if (at > 0) expect(y - (heights[at - 1] ?? 0)).toBeGreaterThanOrEqual(13.9);
    }
    const leaders = scene.shapes.filter(
      (shape) => shape.kind === "path" && (shape.points[0]?.[0] ?? 0) > px(10),
    );
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
