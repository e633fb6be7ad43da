// The figure as a file: PNG and SVG with title, colour key, pinned cell and caption; CSV with the
// numbers.

import { arcShapes, layoutArcs } from "./arcs.js";
import { csvBlob } from "./file.js";
import { boxShapes, slidersIn, wordShapes } from "./html_shapes.js";
import { KEY_HEIGHT, keyShapes } from "./key_scene.js";
import type { Matrix } from "./matrix.js";
import { layoutMatrix } from "./matrix_layout.js";
import { type Marks, matrixShapes } from "./matrix_scene.js";
import { paint, sceneOn } from "./paint.js";
import type { Palette } from "./palette.js";
import { moved, type Scene, type Shape } from "./scene.js";
import { toSvg } from "./svg.js";
import { drawnShapes } from "./svg_shapes.js";
import { linesWithin } from "./text_width.js";

export interface FigureWords {
  title: string;
  /** The pinned cell in words, or "". */
  reading: string;
  caption: string;
}

const WIDTH = 672;
const MATRIX_HEIGHT = 640;
const MARGIN = 24;
const LINE = 18;
const TITLE_SIZE = 18;
const TEXT_SIZE = 12;

/** Shapes as wide as a file's picture, and how tall they are. */
interface Body {
  shapes: readonly Shape[];
  height: number;
}

/** A picture between its title above, its reading and its caption below. */
function framed(words: FigureWords, palette: Palette, width: number, body: Body): Scene {
  const shapes: Shape[] = [];
  let y = MARGIN + 8;
  const paragraph = (words: string, size: number, fill: string, bold = false) => {
    for (const text of linesWithin(words, width, size, bold)) {
      shapes.push({ kind: "text", x: MARGIN, y, text, size, fill, anchor: "start", bold });
      y += Math.max(LINE, size * 1.5);
    }
  };
  paragraph(words.title, TITLE_SIZE, palette.ink, true);
  y += 8;
  shapes.push(...moved(body.shapes, MARGIN, y));
  y += body.height + 16;
  paragraph(words.reading, TEXT_SIZE + 1, palette.ink, true);
  paragraph(words.caption, TEXT_SIZE, palette.soft);
  return {
    width: width + 2 * MARGIN,
    height: y + MARGIN - LINE / 2,
    background: palette.background,
    hatch: palette.hatch,
    shapes,
  };
}

export function figureScene(
  matrix: Matrix,
  marks: Marks,
  words: FigureWords,
  palette: Palette,
  arcs = false,
): Scene {
  const cells = layoutMatrix(matrix, WIDTH, MATRIX_HEIGHT);
  const column = layoutArcs(matrix, WIDTH, MATRIX_HEIGHT);
  const layout = arcs ? column : cells;
  const key = moved(keyShapes(matrix, palette, WIDTH), arcs ? 0 : cells.left, layout.height + 12);
  const drawn = arcs
    ? arcShapes(matrix, column, palette, marks)
    : matrixShapes(matrix, cells, palette, marks);
  const shapes = [...drawn, ...key];
  return framed(words, palette, WIDTH, { shapes, height: layout.height + 12 + KEY_HEIGHT });
}

/** What a canvas shows, in CSS pixels from the corner of `from`. */
function paintedShapes(canvas: HTMLCanvasElement, from: DOMRect): Shape[] {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  const [x, y] = [left - from.left, top - from.top];
  const scene = sceneOn(canvas);
  return scene ? moved(scene.shapes, x, y) : [{ kind: "image", canvas, x, y, width, height }];
}

/** What `picture` shows, framed: its boxes, on these its canvases and drawings, its sliders and its words. */
export function pictureScene(picture: HTMLElement, words: FigureWords, palette: Palette): Scene {
  const from = picture.getBoundingClientRect();
  const shapes = boxShapes(picture, from);
  for (const canvas of picture.querySelectorAll("canvas")) {
    shapes.push(...paintedShapes(canvas, from));
  }
  for (const svg of picture.querySelectorAll("svg")) shapes.push(...drawnShapes(svg, from));
  shapes.push(...slidersIn(picture, from, palette), ...wordShapes(picture, from));
  return framed(words, palette, from.width, { shapes, height: from.height });
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

/** One line per row; hidden cells are empty. Numbers keep every digit of their float32 value. */
export function csvFile(matrix: Matrix): Blob {
  const lines = [[`${matrix.rowName}/${matrix.columnName}`, ...matrix.columnLabels]];
  for (let row = 0; row < matrix.rowCount; row++) {
    const cells = [matrix.rowLabels[row] ?? ""];
    for (let column = 0; column < matrix.columnCount; column++) {
      const value = matrix.values[row * matrix.columnCount + column] ?? Number.NaN;
      const shown = matrix.kind === "mask" ? 1 : value;
      cells.push(matrix.hidden(row, column) ? (matrix.kind === "mask" ? "0" : "") : String(shown));
    }
    lines.push(cells);
  }
  return csvBlob(lines);
}
