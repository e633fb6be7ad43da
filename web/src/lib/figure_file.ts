// The figure as a file: PNG and SVG with title, colour key, pinned cell and caption; CSV and JSON
// with the numbers.
import { KEY_HEIGHT, keyShapes } from "./key_scene.js";
import type { Matrix } from "./matrix.js";
import { layoutMatrix } from "./matrix_layout.js";
import { type Marks, matrixShapes } from "./matrix_scene.js";
import { paint } from "./paint.js";
import type { Palette } from "./palette.js";
import { moved, type Scene, type Shape } from "./scene.js";
import { toSvg } from "./svg.js";

export interface FigureWords {
  title: string;
  /** The pinned cell in words, or "". */
  reading: string;
  caption: string;
}

const WIDTH = 720;
const MATRIX_HEIGHT = 640;
const MARGIN = 24;
const LINE = 18;
const TEXT_SIZE = 12;
const LETTERS_A_LINE = Math.floor((WIDTH - 2 * MARGIN) / (TEXT_SIZE * 0.56));

function wrapped(text: string): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/\s+/)) {
    if (line && line.length + word.length + 1 > LETTERS_A_LINE) {
      lines.push(line);
      line = word;
    } else {
      line = line ? `${line} ${word}` : word;
    }
  }
  return line ? [...lines, line] : lines;
}

export function figureScene(
  matrix: Matrix,
  marks: Marks,
  words: FigureWords,
  palette: Palette,
): Scene {
  const shapes: Shape[] = [];
  let y = MARGIN + 8;
  const line = (text: string, size: number, fill: string, bold = false) => {
    shapes.push({ kind: "text", x: MARGIN, y, text, size, fill, anchor: "start", bold });
    y += Math.max(LINE, size * 1.5);
  };
  line(words.title, 18, palette.ink, true);
  y += 8;
  const layout = layoutMatrix(matrix, WIDTH - 2 * MARGIN, MATRIX_HEIGHT);
  shapes.push(...moved(matrixShapes(matrix, layout, palette, marks), MARGIN, y));
  y += layout.height + 12;
  shapes.push(...moved(keyShapes(matrix, palette, WIDTH - 2 * MARGIN), MARGIN + layout.left, y));
  y += KEY_HEIGHT + 16;
  for (const text of wrapped(words.reading)) line(text, TEXT_SIZE + 1, palette.ink, true);
  for (const text of wrapped(words.caption)) line(text, TEXT_SIZE, palette.soft);
  return {
    width: WIDTH,
    height: y + MARGIN - LINE / 2,
    background: palette.background,
    hatch: palette.hatch,
    shapes,
  };
}

export function svgFile(scene: Scene, words: FigureWords): Blob {
  const description = `${words.reading} ${words.caption}`.trim();
  return new Blob([toSvg(scene, words.title, description)], { type: "image/svg+xml" });
}

/** Twice the size on the page: sharp in print and on dense screens. */
export async function pngFile(scene: Scene): Promise<Blob> {
  const canvas = document.createElement("canvas");
  paint(canvas, scene, 2);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no PNG"))), "image/png");
  });
}

function csvField(text: string): string {
  // A leading =, +, - or @ would be a formula to a spreadsheet.
  const safe = /^[=+\-@\t]/.test(text) ? `'${text}` : text;
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** One line per row; hidden cells are empty. Numbers keep every digit of their float32 value. */
export function csvFile(matrix: Matrix): Blob {
  const head = [`${matrix.rowName}/${matrix.columnName}`, ...matrix.columnLabels].map(csvField);
  const lines = [head.join(",")];
  for (let row = 0; row < matrix.rowCount; row++) {
    const cells = [csvField(matrix.rowLabels[row] ?? "")];
    for (let column = 0; column < matrix.columnCount; column++) {
      const value = matrix.values[row * matrix.columnCount + column] ?? Number.NaN;
      const shown = matrix.kind === "mask" ? 1 : value;
      cells.push(matrix.hidden(row, column) ? (matrix.kind === "mask" ? "0" : "") : String(shown));
    }
    lines.push(cells.join(","));
  }
  return new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" });
}

/** Hands a file to the browser's downloads. */
export function save(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // Some browsers read the URL after the click has returned.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
