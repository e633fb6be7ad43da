// A matrix as shapes: cells, labels, numbers where they fit, and the marks of hover and pin.
import { fixed } from "./format.js";
import { type Cell, type Matrix, rampPosition, valueAt } from "./matrix.js";
import { cellBox, LABEL_LIMIT, type Layout, shownLabels } from "./matrix_layout.js";
import type { Palette } from "./palette.js";
import { inkOn, rampColour } from "./ramp.js";
import { type Shape, shortened, type TextShape } from "./scene.js";
import { shortenedTo } from "./text_width.js";

/** Which rows and columns stand out. Either may be absent. */
export interface Marks {
  row: number | null;
  column: number | null;
  pin: Cell | null;
}

export const NO_MARKS: Marks = { row: null, column: null, pin: null };

const NUMBER_CELL = 30;

/** ".40" for weights, "1.2" for scores: what fits into a cell. Weights that round to 0 stay bare. */
function shortNumber(matrix: Matrix, value: number): string {
  if (matrix.kind !== "weight") return fixed(value, 1);
  const text = fixed(value, 2);
  if (Number(value.toFixed(2)) === 0) return "";
  return Number(value.toFixed(2)) === 1 ? "1" : text.replace(/^0/, "");
}

/** Cells of one colour that touch would be a patch: a line is left between them. */
const apart = (box: ReturnType<typeof cellBox>) => ({
  ...box,
  width: box.width - (box.width > 3 ? 1 : 0),
  height: box.height - (box.height > 3 ? 1 : 0),
});

function cellShapes(matrix: Matrix, layout: Layout, palette: Palette): Shape[] {
  const shapes: Shape[] = [];
  const ramp = palette.ramps[matrix.ramp];
  const room = Math.min(layout.cellWidth, layout.cellHeight * 1.5);
  const withNumbers = room >= NUMBER_CELL && matrix.kind !== "mask";
  for (let row = 0; row < matrix.rowCount; row++) {
    for (let column = 0; column < matrix.columnCount; column++) {
      const box = cellBox(layout, row, column);
      if (matrix.hidden(row, column)) {
        shapes.push({ kind: "hatch", ...box });
        continue;
      }
      const value = valueAt(matrix, row, column);
      const fill =
        matrix.kind === "mask" ? palette.faint : rampColour(ramp, rampPosition(matrix, value));
      const isPatch = matrix.kind === "mask" && layout.gap === 0;
      shapes.push({ kind: "rect", fill, ...(isPatch ? apart(box) : box) });
      const text = withNumbers ? shortNumber(matrix, value) : "";
      if (text) {
        shapes.push({
          kind: "text",
          x: box.x + box.width / 2,
          y: box.y + box.height / 2 + 0.5,
          text,
          size: Math.min(13, room * 0.32),
          fill: inkOn(fill),
          anchor: "middle",
        });
      }
    }
  }
  return shapes;
}

function labelShapes(matrix: Matrix, layout: Layout, palette: Palette, marks: Marks): Shape[] {
  const shapes: Shape[] = [];
  const marked = (own: number, mark: number | null, pin: number | undefined) =>
    own === mark || own === pin;
  const size = layout.labelSize;
  const isRow = shownLabels(size, layout.cellHeight, [marks.row, marks.pin?.row]);
  const isColumn = shownLabels(size, layout.cellWidth, [marks.column, marks.pin?.column]);
  matrix.rowLabels.forEach((label, row) => {
    const bold = marked(row, marks.row, marks.pin?.row);
    if (!isRow(row)) return;
    shapes.push({
      kind: "text",
      x: layout.left - 8,
      y: layout.top + (row + 0.5) * layout.cellHeight,
      text: shortenedTo(label, layout.left - 10, size, bold),
      size,
      fill: bold ? palette.ink : palette.roleText[matrix.rowRole],
      anchor: "end",
      bold,
    });
  });
  matrix.columnLabels.forEach((label, column) => {
    const bold = marked(column, marks.column, marks.pin?.column);
    if (!isColumn(column)) return;
    const x = layout.left + (column + 0.5) * layout.cellWidth;
    const text: TextShape = {
      kind: "text",
      x: layout.angle === 45 ? x - 2 : x,
      y: layout.top - 9,
      text: shortened(label, LABEL_LIMIT),
      size,
      fill: bold ? palette.ink : palette.roleText[matrix.columnRole],
      anchor: layout.angle ? "start" : "middle",
      bold,
    };
    shapes.push(layout.angle ? { ...text, rotate: -layout.angle } : text);
  });
  return shapes;
}

function guideShapes(matrix: Matrix, layout: Layout, palette: Palette, marks: Marks): Shape[] {
  const shapes: Shape[] = [];
  const frame = (
    from: Cell,
    rows: number,
    columns: number,
    line: number,
    stroke: string,
    grow = 0,
  ) => {
    const box = cellBox(layout, from.row, from.column);
    shapes.push({
      kind: "frame",
      x: box.x - 0.5 - grow,
      y: box.y - 0.5 - grow,
      width: columns * layout.cellWidth - layout.gap + 1 + 2 * grow,
      height: rows * layout.cellHeight - layout.gap + 1 + 2 * grow,
      line,
      stroke,
    });
  };
  const { row, column, pin } = marks;
  if (row !== null) frame({ row, column: 0 }, 1, matrix.columnCount, 1, palette.soft);
  if (column !== null) frame({ row: 0, column }, matrix.rowCount, 1, 1, palette.soft);
  if (row !== null && column !== null) frame({ row, column }, 1, 1, 2, palette.ink);
  if (pin) {
    frame(pin, 1, 1, 2, palette.background, 0.5);
    frame(pin, 1, 1, 2.5, palette.ink, 2);
  }
  return shapes;
}

/** The matrix with labels and marks, its corner at (0, 0). */
export function matrixShapes(
  matrix: Matrix,
  layout: Layout,
  palette: Palette,
  marks: Marks,
): Shape[] {
  const outline: Shape = {
    kind: "frame",
    x: layout.left - 0.5,
    y: layout.top - 0.5,
    width: matrix.columnCount * layout.cellWidth - layout.gap + 1,
    height: matrix.rowCount * layout.cellHeight - layout.gap + 1,
    line: 1,
    stroke: palette.faint,
  };
  return [
    ...cellShapes(matrix, layout, palette),
    outline,
    ...labelShapes(matrix, layout, palette, marks),
    ...guideShapes(matrix, layout, palette, marks),
  ];
}
