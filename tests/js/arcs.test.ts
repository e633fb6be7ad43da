// The figures of the first page that draw a matrix in another way: arcs, and products by dimension.
import { describe, expect, test } from "vitest";
import { arcCellAt, arcShapes, hasArcs, layoutArcs } from "../../web/src/lib/arcs.js";
import {
  dimensionProducts,
  dimensionScene,
  extremes,
  rangeOf,
} from "../../web/src/lib/dimension_scene.js";
import { makeMatrix } from "../../web/src/lib/make_matrix.js";
import { NO_MARKS } from "../../web/src/lib/matrix_scene.js";
import { makePalette } from "../../web/src/lib/palette.js";

const palette = makePalette(() => "#336699", false);
const words = ["a", "b", "c"];
const weights = [0.5, 0.3, 0.2, 0.005, 0.995, 0, 0.1, 0.6, 0.3];
const matrixOf = (hidden: (row: number, column: number) => boolean = () => false) =>
  makeMatrix({
    title: "",
    kind: "weight",
    values: weights,
    rowLabels: words,
    columnLabels: words,
    limit: 1,
    hidden,
  });
const paths = (shapes: ReturnType<typeof arcShapes>) =>
  shapes.filter((shape) => shape.kind === "path");

describe("arcs between words", () => {
  test("stand for weights of a percent and more, the strongest on top", () => {
    const matrix = matrixOf();
    const shapes = arcShapes(matrix, layoutArcs(matrix, 400, 300), palette, NO_MARKS);
    expect(paths(shapes)).toHaveLength(4); // of six pairs one has no weight and one a hair
    const lines = paths(shapes).map((shape) => shape.line);
    expect(lines).toEqual([...lines].sort((x, y) => x - y));
    expect(shapes.filter((shape) => shape.kind === "dot")).toHaveLength(3);
  });

  test("lead from the query to the key: back on the right, ahead on the left", () => {
    const matrix = matrixOf();
    const layout = layoutArcs(matrix, 400, 300);
    const marks = { row: 2, column: null, pin: null };
    const own = paths(arcShapes(matrix, layout, palette, marks)).slice(-2);
    const middle = (at: number) => layout.top + (at + 0.5) * layout.pitch;
    for (const [at, { points }] of own.entries()) {
      const ends = [points[0]?.[1], points.at(-1)?.[1]].map((y) => y ?? Number.NaN);
      expect(ends[0]).toBeCloseTo(middle(2));
      expect(ends[1]).toBeCloseTo(middle(at)); // 0.1 to "a", then 0.6 to "b"
      expect(Math.min(...points.map(([x]) => x))).toBeGreaterThanOrEqual(layout.right - 1e-6);
    }
    const ahead = paths(arcShapes(matrix, layout, palette, { ...marks, row: 0 })).at(-1);
    expect(Math.max(...(ahead?.points.map(([x]) => x) ?? []))).toBeLessThanOrEqual(
      layout.left + 1e-6,
    );
  });

  test("leave no room for later words that nobody sees, and none for hidden pairs", () => {
    const causal = matrixOf((row, column) => column > row);
    expect(layoutArcs(causal, 400, 300).left).toBe(0);
    expect(layoutArcs(matrixOf(), 400, 300).left).toBeGreaterThan(0);
    expect(paths(arcShapes(causal, layoutArcs(causal, 400, 300), palette, NO_MARKS))).toHaveLength(
      2,
    );
  });

  test("a point is the word in its line, and what that looks at most", () => {
    const matrix = matrixOf();
    const layout = layoutArcs(matrix, 400, 300);
    const y = (row: number) => layout.top + (row + 0.5) * layout.pitch;
    expect(arcCellAt(matrix, layout, 200, y(2))).toEqual({ row: 2, column: 1 });
    expect(arcCellAt(matrix, layout, 200, y(0))).toEqual({ row: 0, column: 0 });
    expect(arcCellAt(matrix, layout, 200, y(3))).toBeNull();
    expect(arcCellAt(matrix, layout, -1, y(0))).toBeNull();
  });

  test("need the same words as queries and keys", () => {
    expect(hasArcs(matrixOf())).toBe(true);
    expect(hasArcs({ ...matrixOf(), kind: "score" })).toBe(false);
    expect(hasArcs({ ...matrixOf(), columnLabels: ["a", "b", "x"] })).toBe(false);
  });
});

describe("products by dimension", () => {
  const products = dimensionProducts([1, -2, 3], [4, 5, 0.5], 0.5);

  test("add up to the scaled score", () => {
    expect(products).toEqual([2, -5, 0.75]);
    expect(extremes(products)).toEqual({ most: 0, least: 1 });
    expect(extremes([0, 0])).toEqual({ most: -1, least: -1 });
  });

  test("are bars up and down from one line, on the scale of all keys", () => {
    const range = rangeOf([products, [7, 0, 0]]);
    expect(range).toEqual({ least: -5, most: 7 });
    const { shapes } = dimensionScene(products, range, palette, 300, 120);
    const bars = shapes.filter((shape) => shape.kind === "rect");
    const [up, down, small] = bars;
    const line = paths(shapes)[0]?.points[0]?.[1] ?? Number.NaN;
    expect((up?.y ?? 0) + (up?.height ?? 0)).toBeCloseTo(line);
    expect(down?.y).toBeCloseTo(line);
    expect((down?.height ?? 0) / (up?.height ?? 1)).toBeCloseTo(2.5);
    expect((small?.height ?? 0) / (up?.height ?? 1)).toBeCloseTo(0.375);
    expect((down?.y ?? 0) + (down?.height ?? 0)).toBeLessThan(120 - 16);
  });
});
