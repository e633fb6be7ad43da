// What <attention-map> can show: numbers given by a program, or a JSON file that this site saved.
import { counted, makeMatrix } from "../lib/make_matrix.js";
import type { Matrix } from "../lib/matrix.js";

export interface MapData {
  rows: readonly string[];
  columns: readonly string[];
  /** [rows][columns]; null hides a cell. */
  values: readonly (readonly (number | null)[])[];
  /** Weights run from 0 up, scores to both sides of 0. Absent: weights. */
  kind?: "weights" | "scores";
}

export const MOST_CELLS = 512 * 512;

function fail(what: string): never {
  throw new TypeError(`attention-map: ${what}`);
}

/** Throws TypeError that names what is wrong. */
export function matrixOfMap({ rows, columns, values, kind = "weights" }: MapData): Matrix {
  if (!Array.isArray(rows) || !Array.isArray(columns)) fail("rows and columns are lists of labels");
  if (rows.length * columns.length > MOST_CELLS) fail(`more than ${MOST_CELLS} cells`);
  if (values?.length !== rows.length)
    fail(`values has not one row for each of ${rows.length} rows`);
  const wrong = values.findIndex((row) => row?.length !== columns.length);
  if (wrong >= 0) fail(`row ${wrong + 1} of values has not ${columns.length} numbers`);
  const flat = values.flat();
  if (!flat.every((value) => value === null || typeof value === "number")) {
    fail("values holds what is neither a number nor null");
  }
  return makeMatrix({
    title: kind === "scores" ? "Scores" : "Weights",
    kind: kind === "scores" ? "score" : "weight",
    values: Float32Array.from(flat, (value) => value ?? 0),
    rowLabels: rows.map(String),
    columnLabels: columns.map(String),
    hidden: (row, column) => flat[row * columns.length + column] === null,
  });
}

type Rows = (number | null)[][];

interface SavedFigure {
  format: "heed-figure-1";
  tokens: string[];
  head: number;
  weights: Rows[];
  scores: Rows[];
}

interface SavedMechanism {
  format: "heed-mechanism-1";
  head: number;
  results: Record<string, { shape: number[]; data: (number | null)[] } | undefined>;
}

function figureData(
  { tokens, weights, scores, ...saved }: SavedFigure,
  head: number | null,
): MapData {
  const at = head ?? saved.head;
  const [own, seen] = [weights?.[at], scores?.[at]];
  if (!own || !seen) fail(`the file has no head ${at + 1}`);
  const values = own.map((row, i) => row.map((value, j) => (seen[i]?.[j] === null ? null : value)));
  return { rows: tokens, columns: tokens, values };
}

function mechanismData({ results, ...saved }: SavedMechanism, head: number | null): MapData {
  const at = head ?? saved.head;
  const { weights } = results;
  if (weights?.shape.length !== 4) fail("the file has no weights [batch, heads, queries, keys]");
  const [, heads = 0, queries = 0, keys = 0] = weights.shape;
  if (at >= heads) fail(`the file has no head ${at + 1}`);
  const row = (i: number) =>
    weights.data.slice((at * queries + i) * keys, (at * queries + i + 1) * keys);
  const values = Array.from({ length: queries }, (_, i) => row(i));
  return { rows: counted(queries), columns: counted(keys), values };
}

/** The map of a file saved with "JSON" on this site; `head` counts from 0, null takes the file's. */
export function mapOfFile(file: unknown, head: number | null): MapData {
  const { format } = (file ?? {}) as { format?: unknown };
  if (format === "heed-figure-1") return figureData(file as SavedFigure, head);
  if (format === "heed-mechanism-1") return mechanismData(file as SavedMechanism, head);
  return fail(`format is ${JSON.stringify(format)}, not "heed-figure-1" or "heed-mechanism-1"`);
}
