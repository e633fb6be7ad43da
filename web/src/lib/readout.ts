// The numbers of one cell, in words and as a list.

import type { Attended } from "./engine.js";
import { fixed } from "./format.js";
import { hiddenBy, type MaskRules } from "./mask.js";
import { type Cell, isEmptyRow, type Matrix, rankInRow, valueAt } from "./matrix.js";
import { t } from "./messages.js";

export interface Reading {
  term: string;
  value: string;
}

/** What the pair (query, key) of one head went through, from q.k to the weight. */
export function pairReadings(
  attended: Attended,
  head: number,
  cell: Cell,
  matrix: Matrix,
  weights: Matrix,
): Reading[] {
  const n = attended.length;
  const at = (head * n + cell.row) * n + cell.column;
  const hidden = matrix.hidden(cell.row, cell.column);
  const { rank, of } = rankInRow(weights, cell);
  return [
    { term: t`scaled q·k`, value: fixed(attended.raw[at] ?? Number.NaN) },
    { term: t`score`, value: hidden ? t`hidden` : fixed(attended.scores[at] ?? Number.NaN) },
    { term: t`weight`, value: fixed(attended.weights[at] ?? Number.NaN, 4) },
    { term: t`rank`, value: hidden ? "–" : t`${rank} of ${of}` },
  ];
}

export function vectorReadings(matrix: Matrix, cell: Cell): Reading[] {
  return [
    { term: matrix.columnName, value: String(cell.column + 1) },
    { term: t`value`, value: fixed(valueAt(matrix, cell.row, cell.column), 4) },
  ];
}

/** A sentence about a row that sees nothing or a cell that is hidden; else null. */
export function cellRemark(matrix: Matrix, rules: MaskRules, cell: Cell): string | null {
  if (isEmptyRow(matrix, cell.row)) {
    return t`“${matrix.rowLabels[cell.row]}” sees nothing: its weights and its output are zero.`;
  }
  if (!matrix.hidden(cell.row, cell.column)) return null;
  const reason = hiddenBy(rules, cell.row, cell.column);
  return reason ? t`Hidden by ${reason}.` : null;
}

/** The same as one sentence for a screen reader. */
export function spokenCell(
  matrix: Matrix,
  cell: Cell,
  readings: readonly Reading[],
  remark: string | null,
  pinned: boolean,
): string {
  const names =
    matrix.columnName === t`dimension`
      ? `${matrix.rowLabels[cell.row]}`
      : `${matrix.rowName} ${matrix.rowLabels[cell.row]}, ${matrix.columnName} ${matrix.columnLabels[cell.column]}`;
  const numbers = readings.map(({ term, value }) => `${term} ${value}`).join(", ");
  return `${pinned ? t`Pinned. ` : ""}${names}: ${numbers}.${remark ? ` ${remark}` : ""}`;
}
