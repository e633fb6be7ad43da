// A cell of a matrix as links have it: "3,4", row and column from 1. A link is input from a stranger.
import type { Cell } from "./matrix.js";

/** A count from 1 as an index; NaN where it is none. */
export const indexIn = (text: string | null | undefined): number =>
  /^[1-9]\d{0,5}$/.test(text ?? "") ? Number(text) - 1 : Number.NaN;

export const linkCell = ({ row, column }: Cell): string => `${row + 1},${column + 1}`;

/** Null where the text is no cell. */
export function cellInLink(text: string | null): Cell | null {
  const [row, column, ...more] = (text ?? "").split(",").map(indexIn);
  const isCell = row !== undefined && column !== undefined && row + column >= 0;
  return isCell && more.length === 0 ? { row, column } : null;
}
