// Where the cells and the labels of a matrix go.
import type { Cell, Matrix } from "./matrix.js";
import { shortened } from "./scene.js";
import { EM, textWidth } from "./text_width.js";

/** How column labels lie, in degrees: flat where they fit, leaning, or upright when very close. */
export type LabelAngle = 0 | 45 | 90;

export interface Layout {
  /** Top left corner of cell (0, 0) and the cell size; gap is the space between cells. */
  left: number;
  top: number;
  cellWidth: number;
  cellHeight: number;
  gap: number;
  labelSize: number;
  angle: LabelAngle;
  width: number;
  height: number;
}

/** Longer labels are cut, in letters. */
export const LABEL_LIMIT = 12;

const LARGEST_CELL = 64;
/** Rows of vectors may be taller than wide, so that few tokens still fill some of the picture. */
const TALLEST_VECTOR_CELL = 44;
const SMALLEST_LABEL = 9;
const NARROW = 440;

function letters(label: string): number {
  return Math.min(LABEL_LIMIT, [...label].length);
}

function longest(labels: readonly string[]): number {
  return Math.max(1, ...labels.map(letters));
}

/** As wide as the widest label is when it is marked. */
function widest(labels: readonly string[], size: number): number {
  const cut = new Set(labels.map((label) => shortened(label, LABEL_LIMIT)));
  return Math.max(size * EM, ...[...cut].map((label) => textWidth(label, size, true)));
}

/** A label that is marked is bold. */
const BOLD = 1.1;

/** How far leaning labels reach beyond the last column. */
function overhang(labels: readonly string[], cell: number, size: number): number {
  const reach = labels.map(
    (label, column) =>
      (letters(label) * size * EM * BOLD + size) * Math.SQRT1_2 -
      (labels.length - column - 0.5) * cell,
  );
  return Math.ceil(Math.max(1, ...reach));
}

/** Height above and width beside the cells that the column labels need. */
function labelRoom(labels: readonly string[], angle: LabelAngle, size: number, pitch: number) {
  const wide = longest(labels) * size * EM * BOLD;
  if (angle === 0) return { top: 24, right: 1 };
  if (angle === 90) return { top: Math.ceil(wide + 14), right: 1 };
  return { top: Math.ceil(wide * Math.SQRT1_2 + size), right: overhang(labels, pitch, size) };
}

function labelsFit(angle: LabelAngle, wide: number, size: number, cell: number): boolean {
  if (angle === 0) return wide <= cell - 4;
  return angle === 90 || cell * Math.SQRT1_2 >= size * 0.9;
}

/** Shows every label where there is room, else every second, third, ... with a gap that tells them apart. */
const labelStep = (size: number, pitch: number): number =>
  size * 1.05 <= pitch ? 1 : Math.ceil((size * 1.35) / pitch);

/**
 * Which of a row of labels, `pitch` pixels apart, are shown: as many as have room, and those that are marked,
 * the first of them before the second. None lies on another.
 */
export function shownLabels(
  size: number,
  pitch: number,
  marked: readonly (number | null | undefined)[],
): (at: number) => boolean {
  const step = labelStep(size, pitch);
  const touch = (a: number, b: number) => Math.abs(a - b) < step;
  const kept: number[] = [];
  for (const at of marked) {
    if (at !== null && at !== undefined && !kept.some((other) => other !== at && touch(at, other)))
      kept.push(at);
  }
  return (at) => kept.includes(at) || (at % step === 0 && !kept.some((other) => touch(at, other)));
}

/** Fits the matrix with its labels into width x height. */
export function layoutMatrix(matrix: Matrix, width: number, height: number): Layout {
  const rows = Math.max(1, matrix.rowCount);
  const columns = Math.max(1, matrix.columnCount);
  const size = width < NARROW ? 11 : 13;
  const left = Math.ceil(Math.min(width * 0.24, widest(matrix.rowLabels, size) + 12));
  const wide = longest(matrix.columnLabels) * size * EM;
  const fit = (angle: LabelAngle) => {
    const room = labelRoom(matrix.columnLabels, angle, size, (width - left) / columns);
    const across = Math.max(1, width - left - room.right) / columns;
    const down = (height - room.top - 1) / rows;
    return { angle, across, down, top: room.top, cell: Math.min(across, down, LARGEST_CELL) };
  };
  const angles = [0, 45, 90] as const;
  const chosen = angles.map(fit).find(({ angle, cell }) => labelsFit(angle, wide, size, cell));
  const { angle, across, down, top, cell } = chosen ?? fit(90);
  const whole = (side: number) => (side >= 8 ? Math.floor(side) : side);
  const vector = matrix.kind === "vector";
  const cellWidth = whole(vector ? Math.min(across, LARGEST_CELL) : cell);
  const cellHeight = whole(vector ? Math.min(down, TALLEST_VECTOR_CELL) : cell);
  return {
    left,
    top,
    cellWidth,
    cellHeight,
    gap: Math.min(cellWidth, cellHeight) >= 10 ? 1 : 0,
    labelSize: Math.max(SMALLEST_LABEL, Math.min(size, Math.min(cellWidth, cellHeight) * 0.85)),
    angle,
    width,
    height: top + rows * cellHeight + 2,
  };
}

/** The cell under a point in CSS pixels, or null. */
export function cellAt(matrix: Matrix, layout: Layout, x: number, y: number): Cell | null {
  const column = Math.floor((x - layout.left) / layout.cellWidth);
  const row = Math.floor((y - layout.top) / layout.cellHeight);
  const inside = row >= 0 && column >= 0 && row < matrix.rowCount && column < matrix.columnCount;
  return inside ? { row, column } : null;
}

export function cellBox(layout: Layout, row: number, column: number) {
  return {
    x: layout.left + column * layout.cellWidth,
    y: layout.top + row * layout.cellHeight,
    width: layout.cellWidth - layout.gap,
    height: layout.cellHeight - layout.gap,
  };
}
