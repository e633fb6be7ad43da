// A matrix as shapes: cells, labels, numbers where they fit, and the marks of hover and pin.
import { fixed } from "./format.js";
import { type Cell, type Matrix, rampPosition, valueAt } from "./matrix.js";
import type { Palette } from "./palette.js";
import { inkOn, rampColour } from "./ramp.js";
import { type Shape, shortened, type TextShape } from "./scene.js";

export interface Layout {
  /** Top left corner of cell (0, 0) and the cell size; gap is the space between cells. */
  left: number;
  top: number;
  cellWidth: number;
  cellHeight: number;
  gap: number;
  labelSize: number;
  slanted: boolean;
  width: number;
  height: number;
}

/** Which rows and columns stand out. Either may be absent. */
export interface Marks {
  row: number | null;
  column: number | null;
  pin: Cell | null;
}

export const NO_MARKS: Marks = { row: null, column: null, pin: null };

const LARGEST_CELL = 64;
const SMALLEST_LABEL = 9;
const NUMBER_CELL = 30;
const LABEL_LIMIT = 12;
const EM = 0.6;

function longest(labels: readonly string[]): number {
  return Math.min(LABEL_LIMIT, Math.max(1, ...labels.map((label) => [...label].length)));
}

/** How far leaning labels reach beyond the last column. */
function overhang(labels: readonly string[], cell: number, size: number): number {
  const reach = labels.map((label, column) => {
    const wide = Math.min(LABEL_LIMIT, [...label].length) * size * EM;
    return (wide + size) * Math.SQRT1_2 - (labels.length - column - 0.5) * cell;
  });
  return Math.ceil(Math.max(1, ...reach));
}

/** Fits the matrix with its labels into width x height. */
export function layoutMatrix(matrix: Matrix, width: number, height: number): Layout {
  const rows = Math.max(1, matrix.rowCount);
  const columns = Math.max(1, matrix.columnCount);
  const size = width < 440 ? 11 : 13;
  const left = Math.ceil(Math.min(width * 0.24, longest(matrix.rowLabels) * size * EM + 12));
  const wide = longest(matrix.columnLabels) * size * EM;
  // Labels lie flat where they fit, else they lean, which costs height and a little width.
  const flatCell = Math.min((width - left) / columns, (height - 24) / rows, LARGEST_CELL);
  const slanted = wide > flatCell - 4;
  const top = slanted ? Math.ceil(wide * Math.SQRT1_2 + size) : 24;
  const right = slanted ? overhang(matrix.columnLabels, (width - left) / columns, size) : 1;
  const across = Math.max(1, width - left - right);
  const cell = Math.min(across / columns, (height - top - 1) / rows, LARGEST_CELL);
  const side = cell >= 8 ? Math.floor(cell) : cell;
  return {
    left,
    top,
    cellWidth: side,
    cellHeight: side,
    gap: side >= 10 ? 1 : 0,
    labelSize: Math.max(SMALLEST_LABEL, Math.min(size, side * 0.8)),
    slanted,
    width,
    height: top + rows * side + 2,
  };
}

/** The cell under a point in CSS pixels, or null. */
export function cellAt(matrix: Matrix, layout: Layout, x: number, y: number): Cell | null {
  const column = Math.floor((x - layout.left) / layout.cellWidth);
  const row = Math.floor((y - layout.top) / layout.cellHeight);
  const inside = row >= 0 && column >= 0 && row < matrix.rowCount && column < matrix.columnCount;
  return inside ? { row, column } : null;
}

function cellBox(layout: Layout, row: number, column: number) {
  return {
    x: layout.left + column * layout.cellWidth,
    y: layout.top + row * layout.cellHeight,
    width: layout.cellWidth - layout.gap,
    height: layout.cellHeight - layout.gap,
  };
}

/** ".40" for weights, "1.2" for scores: what fits into a cell. Weights that round to 0 stay bare. */
function shortNumber(matrix: Matrix, value: number): string {
  if (matrix.kind !== "weight") return fixed(value, 1);
  const text = value.toFixed(2);
  if (text === "0.00") return "";
  return text === "1.00" ? "1" : text.replace(/^0/, "");
}

function cellShapes(matrix: Matrix, layout: Layout, palette: Palette): Shape[] {
  const shapes: Shape[] = [];
  const ramp = palette.ramps[matrix.ramp];
  const withNumbers = layout.cellWidth >= NUMBER_CELL && matrix.kind !== "mask";
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
      shapes.push({ kind: "rect", fill, ...box });
      const text = withNumbers ? shortNumber(matrix, value) : "";
      if (text) {
        shapes.push({
          kind: "text",
          x: box.x + box.width / 2,
          y: box.y + box.height / 2 + 0.5,
          text,
          size: Math.min(13, layout.cellWidth * 0.32),
          fill: inkOn(fill),
          anchor: "middle",
        });
      }
    }
  }
  return shapes;
}

/** Shows every label where there is room, else every second, third, ... and always marked ones. */
function labelStep(layout: Layout, side: number): number {
  return Math.max(1, Math.ceil((layout.labelSize * 1.05) / side));
}

function labelShapes(matrix: Matrix, layout: Layout, palette: Palette, marks: Marks): Shape[] {
  const shapes: Shape[] = [];
  const marked = (own: number, mark: number | null, pin: number | undefined) =>
    own === mark || own === pin;
  const limit = Math.floor((layout.left - 10) / (layout.labelSize * EM));
  const rowStep = labelStep(layout, layout.cellHeight);
  const columnStep = labelStep(layout, layout.cellWidth);
  matrix.rowLabels.forEach((label, row) => {
    const bold = marked(row, marks.row, marks.pin?.row);
    if (row % rowStep && !bold) return;
    shapes.push({
      kind: "text",
      x: layout.left - 8,
      y: layout.top + (row + 0.5) * layout.cellHeight,
      text: shortened(label, Math.max(3, limit)),
      size: layout.labelSize,
      fill: bold ? palette.ink : palette.roleText[matrix.rowRole],
      anchor: "end",
      bold,
    });
  });
  matrix.columnLabels.forEach((label, column) => {
    const bold = marked(column, marks.column, marks.pin?.column);
    if (column % columnStep && !bold) return;
    const x = layout.left + (column + 0.5) * layout.cellWidth;
    const text: TextShape = {
      kind: "text",
      x: layout.slanted ? x - 2 : x,
      y: layout.top - 9,
      text: shortened(label, LABEL_LIMIT),
      size: layout.labelSize,
      fill: bold ? palette.ink : palette.roleText[matrix.columnRole],
      anchor: layout.slanted ? "start" : "middle",
      bold,
    };
    shapes.push(layout.slanted ? { ...text, rotate: -45 } : text);
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
