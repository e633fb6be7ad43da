// What a view needs to know to draw a matrix and to speak about it. Views know nothing else.
import { fixed } from "./format.js";
import { t } from "./messages.js";
import type { RampName, Role } from "./palette.js";

export type MatrixKind = "weight" | "score" | "mask" | "vector";

export interface Matrix {
  /** What is seen, for example "Weights". */
  title: string;
  kind: MatrixKind;
  ramp: RampName;
  rowCount: number;
  columnCount: number;
  /** [rowCount, columnCount]; hidden cells may hold anything. */
  values: ArrayLike<number>;
  hidden: (row: number, column: number) => boolean;
  rowLabels: readonly string[];
  columnLabels: readonly string[];
  rowRole: Role;
  columnRole: Role;
  /** What a row is and what a column is: "query", "key", "dimension". */
  rowName: string;
  columnName: string;
  /** The value at the strong end of the ramp; signed ramps run from -limit to limit. */
  limit: number;
}

/** Which number is which colour. */
export type Scale = Pick<Matrix, "kind" | "ramp" | "limit">;

export interface Cell {
  row: number;
  column: number;
}

export function valueAt(matrix: Matrix, row: number, column: number): number {
  return matrix.values[row * matrix.columnCount + column] ?? Number.NaN;
}

/** Small weights stay visible: the ramp runs with this power of the weight. */
const WEIGHT_POWER = 0.65;

/** Position of a weight on its ramp, 0 to 1. */
export function weightPosition(weight: number, limit: number): number {
  return (Math.max(0, weight) / limit) ** WEIGHT_POWER;
}

/** Position of a signed value on its ramp: 0.5 is zero. */
export function signedPosition(value: number, limit: number): number {
  return 0.5 + value / (2 * limit);
}

/** Position on the matrix's ramp, 0 to 1. */
export function rampPosition(matrix: Scale, value: number): number {
  const position = matrix.kind === "weight" ? weightPosition : signedPosition;
  return position(value, matrix.limit);
}

export function largestMagnitude(values: ArrayLike<number>, floor = 1e-6): number {
  let largest = floor;
  for (let index = 0; index < values.length; index++) {
    const magnitude = Math.abs(values[index] ?? 0);
    if (Number.isFinite(magnitude) && magnitude > largest) largest = magnitude;
  }
  return largest;
}

/** 1 = the largest of the visible cells of the row; equal values share the better rank. */
export function rankInRow(matrix: Matrix, cell: Cell): { rank: number; of: number } {
  const own = valueAt(matrix, cell.row, cell.column);
  let rank = 1;
  let of = 0;
  for (let column = 0; column < matrix.columnCount; column++) {
    if (matrix.hidden(cell.row, column)) continue;
    of++;
    if (valueAt(matrix, cell.row, column) > own) rank++;
  }
  return { rank, of };
}

export function isEmptyRow(matrix: Matrix, row: number): boolean {
  for (let column = 0; column < matrix.columnCount; column++) {
    if (!matrix.hidden(row, column)) return false;
  }
  return matrix.columnCount > 0;
}

/** The number as a table or a tooltip shows it. */
export function cellText(matrix: Matrix, cell: Cell, digits = 3): string {
  if (matrix.hidden(cell.row, cell.column)) return t`hidden`;
  if (matrix.kind === "mask") return t`visible`;
  return fixed(valueAt(matrix, cell.row, cell.column), digits);
}

/** Keeps a cell inside the matrix. */
export function clampCell(matrix: Matrix, cell: Cell): Cell {
  return {
    row: Math.max(0, Math.min(matrix.rowCount - 1, cell.row)),
    column: Math.max(0, Math.min(matrix.columnCount - 1, cell.column)),
  };
}
