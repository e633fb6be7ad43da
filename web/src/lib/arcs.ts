// Weights between tokens of one text as arcs: the words in a column, an arc from each word to those
// it looks at. Arcs on the right go to earlier words, those on the left to later ones.
import { fixed } from "./format.js";
import { type Cell, isEmptyRow, type Matrix, rampPosition, valueAt } from "./matrix.js";
import { shownLabels } from "./matrix_layout.js";
import type { Marks } from "./matrix_scene.js";
import type { Palette } from "./palette.js";
import { rampColour } from "./ramp.js";
import type { Shape } from "./scene.js";
import { EM, shortenedTo } from "./text_width.js";

export interface ArcLayout {
  /** Where words begin and end; arcs leave from their sides. */
  left: number;
  right: number;
  top: number;
  /** From one word to the next. */
  pitch: number;
  labelSize: number;
  /** How far the longest arc reaches. */
  reach: number;
  width: number;
  height: number;
}

/** Weights below it are not drawn: a percent is a hair. */
export const LEAST_WEIGHT = 0.01;

const PADDING = 10;
/** Room of the weights of the row in focus, behind the words. */
const NUMBERS = 34;
const MOST_PITCH = 40;
const MOST_REACH = 190;
const MOST_LETTERS = 14;
const THICKEST = 5;
const POINTS = 28;

/** Arcs join words of one text: queries and keys have to be the same tokens. */
export const hasArcs = ({ kind, rowLabels, columnLabels }: Matrix): boolean =>
  kind === "weight" &&
  rowLabels.length === columnLabels.length &&
  rowLabels.every((label, at) => label === columnLabels[at]);

const looksAhead = (matrix: Matrix): boolean =>
  matrix.rowLabels.some((_, row) =>
    matrix.columnLabels.some((_, column) => column > row && !matrix.hidden(row, column)),
  );

/** Fits the words and their arcs into width x height. */
export function layoutArcs(matrix: Matrix, width: number, height: number): ArcLayout {
  const count = Math.max(1, matrix.rowCount);
  const pitch = Math.min(MOST_PITCH, (height - 2 * PADDING) / count);
  const labelSize = Math.max(9, Math.min(13, pitch * 0.85));
  const longest = Math.max(1, ...matrix.rowLabels.map((label) => [...label].length));
  const words = Math.min(MOST_LETTERS, longest) * labelSize * EM * 1.1 + NUMBERS + 2 * PADDING;
  const sides = looksAhead(matrix) ? 2 : 1;
  const reach = Math.max(0, Math.min(MOST_REACH, (width - words) / sides - PADDING));
  const left = sides === 2 ? reach + PADDING : 0;
  const [top, right] = [PADDING, left + words];
  return { left, right, top, pitch, labelSize, reach, width, height: 2 * top + count * pitch };
}

const middleOf = ({ top, pitch }: ArcLayout, at: number): number => top + (at + 0.5) * pitch;

function strongestKey(matrix: Matrix, row: number): number {
  let strongest = row;
  for (let column = 0; column < matrix.columnCount; column++) {
    if (matrix.hidden(row, column)) continue;
    const more = valueAt(matrix, row, column) > valueAt(matrix, row, strongest);
    if (more || matrix.hidden(row, strongest)) strongest = column;
  }
  return strongest;
}

/** The word under a point, and what it looks at most; null beside the words. */
export function arcCellAt(matrix: Matrix, layout: ArcLayout, x: number, y: number): Cell | null {
  const row = Math.floor((y - layout.top) / layout.pitch);
  if (row < 0 || row >= matrix.rowCount || x < 0 || x > layout.width) return null;
  return { row, column: strongestKey(matrix, row) };
}

/** Half an ellipse at the side of the words; longer arcs reach further. */
function arcPoints(matrix: Matrix, layout: ArcLayout, { row, column }: Cell) {
  const [from, to] = [middleOf(layout, row), middleOf(layout, column)];
  const back = column < row;
  const edge = back ? layout.right : layout.left;
  const share = Math.sqrt(Math.abs(row - column) / Math.max(1, matrix.rowCount - 1));
  const reach = (back ? 1 : -1) * layout.reach * share;
  return Array.from({ length: POINTS + 1 }, (_, step) => {
    const angle = (Math.PI * step) / POINTS;
    const across = edge + reach * Math.sin(angle);
    return [across, (from + to) / 2 + ((from - to) / 2) * Math.cos(angle)] as const;
  });
}

/** Every weight that is drawn, the strongest last, so that it lies on top. */
function drawnCells(matrix: Matrix): (Cell & { weight: number })[] {
  const cells: (Cell & { weight: number })[] = [];
  for (let row = 0; row < matrix.rowCount; row++) {
    for (let column = 0; column < matrix.columnCount; column++) {
      const weight = valueAt(matrix, row, column);
      if (!matrix.hidden(row, column) && weight >= LEAST_WEIGHT)
        cells.push({ row, column, weight });
    }
  }
  return cells.sort((a, b) => a.weight - b.weight);
}

function arcOf(
  matrix: Matrix,
  layout: ArcLayout,
  palette: Palette,
  cell: Cell,
  soft: boolean,
): Shape {
  const weight = valueAt(matrix, cell.row, cell.column);
  const fill = soft
    ? palette.faint
    : rampColour(palette.ramps.weight, rampPosition(matrix, weight));
  if (cell.row === cell.column) {
    // What stays with the word itself.
    const radius = 1 + Math.sqrt(weight / matrix.limit) * Math.min(5, layout.pitch * 0.28);
    const [x, y] = [layout.right - PADDING / 2, middleOf(layout, cell.row)];
    return { kind: "dot", x, y, radius, fill, stroke: palette.background };
  }
  const line = soft ? 1 : 0.75 + (weight / matrix.limit) * THICKEST;
  return { kind: "path", points: arcPoints(matrix, layout, cell), stroke: fill, line };
}

function wordShapes(matrix: Matrix, layout: ArcLayout, palette: Palette, marks: Marks): Shape[] {
  const focus = marks.row ?? marks.pin?.row ?? null;
  const room = layout.right - layout.left - NUMBERS - 2 * PADDING;
  const marked = [focus, marks.column, marks.pin?.row];
  const isShown = shownLabels(layout.labelSize, layout.pitch, marked);
  return matrix.rowLabels.flatMap((label, at): Shape[] => {
    const bold = marked.includes(at);
    const y = middleOf(layout, at);
    const text = { kind: "text", y, size: layout.labelSize, bold } as const;
    const shapes: Shape[] = [];
    if (isShown(at)) {
      const role = at === focus ? "query" : "key";
      const fill = focus === null ? palette.ink : palette.roleText[role];
      const x = layout.left + PADDING / 2;
      shapes.push({
        ...text,
        x,
        text: shortenedTo(label, room, layout.labelSize, bold),
        fill,
        anchor: "start",
      });
    }
    const weight = focus === null || matrix.hidden(focus, at) ? 0 : valueAt(matrix, focus, at);
    if (weight >= LEAST_WEIGHT && layout.pitch >= layout.labelSize) {
      shapes.push({
        ...text,
        x: layout.right - PADDING - 6,
        text: fixed(weight, 2),
        fill: palette.soft,
        anchor: "end",
        bold: false,
      });
    }
    return shapes;
  });
}

/** Words and arcs with their corner at (0, 0); of a row in focus only its own are coloured. */
export function arcShapes(
  matrix: Matrix,
  layout: ArcLayout,
  palette: Palette,
  marks: Marks,
): Shape[] {
  const focus = marks.row ?? marks.pin?.row ?? null;
  const cells = drawnCells(matrix);
  const own = cells.filter(({ row }) => focus === null || row === focus);
  const others = focus === null ? [] : cells.filter(({ row }) => row !== focus);
  const shapes = [...others.map((cell) => arcOf(matrix, layout, palette, cell, true))];
  shapes.push(...own.map((cell) => arcOf(matrix, layout, palette, cell, false)));
  if (focus !== null && isEmptyRow(matrix, focus)) {
    const box = {
      x: layout.left,
      y: middleOf(layout, focus) - layout.pitch / 2,
      height: layout.pitch,
    };
    shapes.push({ kind: "hatch", ...box, width: layout.right - layout.left });
  }
  return [...shapes, ...wordShapes(matrix, layout, palette, marks)];
}
