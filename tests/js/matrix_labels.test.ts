// Labels of a matrix: as many as have room, marked ones first, and none on another. So too along arcs and
// around a circle.
import { describe, expect, it } from "vitest";
import { arcShapes, layoutArcs } from "../../web/src/lib/arcs.js";
import { counted, makeMatrix } from "../../web/src/lib/make_matrix.js";
import { layoutMatrix } from "../../web/src/lib/matrix_layout.js";
import { type Marks, matrixShapes, NO_MARKS } from "../../web/src/lib/matrix_scene.js";
import type { TextShape } from "../../web/src/lib/scene.js";
import { ANGLES, AROUND, bucketRuns } from "../../web/src/mechanisms/reformer/buckets.js";
import { PALETTE, spanOf, textsIn } from "./pictures.js";

const COUNT = 64;
const NARROW = 358;
const matrixOf = (labels: readonly string[]) =>
  makeMatrix({
    title: "Weights",
    kind: "weight",
    values: new Float32Array(labels.length ** 2).fill(1 / labels.length),
    rowLabels: labels,
    columnLabels: labels,
  });
const matrix = matrixOf(counted(COUNT));
const layout = layoutMatrix(matrix, NARROW, 400);
const labelsWith = (marks: Marks) => textsIn(matrixShapes(matrix, layout, PALETTE, marks));
const rowsOf = (texts: readonly TextShape[]) => texts.filter(({ anchor }) => anchor === "end");
const columnsOf = (texts: readonly TextShape[]) => texts.filter(({ rotate }) => rotate === -90);

/** The least distance of two neighbours. */
const pitchOf = (places: readonly number[]): number => {
  const sorted = [...places].sort((a, b) => a - b);
  return Math.min(...sorted.slice(1).map((place, at) => place - (sorted[at] ?? 0)));
};

describe("labels of a matrix", () => {
  it("leave some out on a narrow one", () => {
    expect(layout.angle).toBe(90);
    expect(rowsOf(labelsWith(NO_MARKS)).length).toBeLessThan(COUNT);
    expect(columnsOf(labelsWith(NO_MARKS)).length).toBeLessThan(COUNT);
    // Those that are left stand apart, as lines of text do.
    for (const width of [NARROW, 420, 640]) {
      const dense = layoutMatrix(matrix, width, 420);
      const rows = rowsOf(textsIn(matrixShapes(matrix, dense, PALETTE, NO_MARKS)));
      const pitch = pitchOf(rows.map(({ y }) => y));
      expect(pitch).toBeGreaterThan(1.3 * dense.labelSize);
    }
  });

  it("give way to marked ones, whichever cell is pinned", () => {
    for (let at = 0; at < COUNT; at++) {
      const pin = { row: at, column: COUNT - 1 - at };
      const texts = labelsWith({ ...NO_MARKS, pin });
      expect(rowsOf(texts).find(({ bold }) => bold)?.text).toBe(String(at + 1));
      expect(columnsOf(texts).find(({ bold }) => bold)?.text).toBe(String(COUNT - at));
      expect(pitchOf(rowsOf(texts).map(({ y }) => y))).toBeGreaterThanOrEqual(layout.labelSize);
      expect(pitchOf(columnsOf(texts).map(({ x }) => x))).toBeGreaterThanOrEqual(layout.labelSize);
    }
  });

  it("name what is pointed at rather than a pin beside it, and both where they are apart", () => {
    const bold = (row: number) =>
      rowsOf(labelsWith({ row, column: null, pin: { row: 50, column: 0 } }))
        .filter((text) => text.bold)
        .map(({ text }) => text);
    expect(bold(51)).toEqual(["52"]);
    expect(bold(10)).toEqual(["11", "51"]);
  });

  it("are cut to the room beside the rows, bold or not", () => {
    const words = matrixOf(["WWWWWWWWWWWWWWWWWWWWW", "i", "some more words than fit", "."]);
    const fitted = layoutMatrix(words, NARROW, 300);
    const marks = { row: 0, column: null, pin: null };
    const rows = rowsOf(textsIn(matrixShapes(words, fitted, PALETTE, marks)));
    expect(rows.map(({ text }) => text.endsWith("…"))).toEqual([true, false, true, false]);
    for (const row of rows) expect(spanOf(row)[0]).toBeGreaterThanOrEqual(0);
  });

  it("of arcs do not lie on each other either", () => {
    const column = layoutArcs(matrix, NARROW, 400);
    for (const row of [0, 31, 50]) {
      const marks = { row, column: row + 1, pin: { row: row + 2, column: 0 } };
      const words = textsIn(arcShapes(matrix, column, PALETTE, marks)).filter(
        ({ anchor }) => anchor === "start",
      );
      expect(words.some(({ text }) => text === String(row + 1))).toBe(true);
      expect(pitchOf(words.map(({ y }) => y))).toBeGreaterThanOrEqual(column.labelSize);
    }
  });
});

describe("numbers of buckets around the circle", () => {
  const place = (t: number) => AROUND.indexOf(t);

  it("are one for each run of neighbours, in the middle of its arc", () => {
    const halves = ANGLES.map((_, t) => (place(t) < AROUND.length / 2 ? 3 : 5));
    const runs = bucketRuns(halves);
    expect(runs.map(({ bucket }) => bucket).sort()).toEqual([3, 5]);
    const turn = (angle: number) => angle - 2 * Math.PI * Math.floor(angle / (2 * Math.PI));
    const angle = (at: number) => turn(ANGLES[AROUND[at] ?? 0] ?? 0);
    const middle = (angle(0) + angle(AROUND.length / 2 - 1)) / 2;
    expect(runs.find(({ bucket }) => bucket === 3)?.angle).toBeCloseTo(middle, 9);
  });

  it("join the end of the circle to its beginning", () => {
    const ends = ANGLES.map((_, t) => (place(t) >= 5 && place(t) < 20 ? 1 : 0));
    expect(bucketRuns(ends).map(({ bucket }) => bucket)).toEqual([1, 0]);
    expect(bucketRuns(ANGLES.map(() => 2))).toHaveLength(1);
  });

  it("do not lie on each other, even one to a token", () => {
    const runs = bucketRuns(ANGLES.map((_, t) => place(t) % 2));
    expect(runs.length).toBeGreaterThan(30);
    for (const [at, run] of runs.entries()) {
      const before = runs[at - 1];
      if (before && !before.outside && !run.outside)
        expect(run.angle - before.angle).toBeGreaterThan(0.1);
    }
  });
});
