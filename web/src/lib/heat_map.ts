// A matrix too large for labelled cells, as pixels: up to 4096 x 4096, any part of it.
import { signedPosition, weightPosition } from "./matrix.js";
import type { Palette, RampName } from "./palette.js";

export interface BigMatrix {
  title: string;
  rows: number;
  columns: number;
  /** [rows, columns]; a pattern has 1 where the pair exists and 0 where it does not. */
  values: Float32Array | Uint8Array;
  /** "pattern": visible or not. "weight": from 0. "score": both signs, -Infinity hidden. */
  kind: "pattern" | "weight" | "score";
  limit: number;
  rowName: string;
  columnName: string;
}

/** The part that is seen, in whole cells. */
export interface Part {
  row: number;
  column: number;
  rows: number;
  columns: number;
}

const LEAST_SIDE = 8;

export const wholeOf = ({ rows, columns }: BigMatrix): Part => ({
  row: 0,
  column: 0,
  rows,
  columns,
});

const clamp = (value: number, low: number, high: number) => Math.max(low, Math.min(high, value));

/** The part scaled by `factor` about a cell, inside the matrix. */
export function zoomed(
  matrix: BigMatrix,
  part: Part,
  factor: number,
  about: { row: number; column: number },
): Part {
  const rows = Math.round(
    clamp(part.rows * factor, Math.min(LEAST_SIDE, matrix.rows), matrix.rows),
  );
  const columns = Math.round(
    clamp(part.columns * factor, Math.min(LEAST_SIDE, matrix.columns), matrix.columns),
  );
  // The cell stays where it is in the picture.
  const down = (about.row + 0.5 - part.row) / part.rows;
  const right = (about.column + 0.5 - part.column) / part.columns;
  return {
    rows,
    columns,
    row: Math.round(clamp(about.row + 0.5 - down * rows, 0, matrix.rows - rows)),
    column: Math.round(clamp(about.column + 0.5 - right * columns, 0, matrix.columns - columns)),
  };
}

/** The part moved as little as brings the cell into it. */
export function including(part: Part, { row, column }: { row: number; column: number }): Part {
  return {
    ...part,
    row: clamp(part.row, row - part.rows + 1, row),
    column: clamp(part.column, column - part.columns + 1, column),
  };
}

/** The part moved by cells, inside the matrix. */
export function shiftedPart(matrix: BigMatrix, part: Part, down: number, right: number): Part {
  return {
    ...part,
    row: clamp(Math.round(part.row + down), 0, matrix.rows - part.rows),
    column: clamp(Math.round(part.column + right), 0, matrix.columns - part.columns),
  };
}

const SHADES = 1024;

/** Colours as 0xAABBGGRR, the order of bytes in image data. */
function packed(hex: string): number {
  const rgb = Number.parseInt(hex.slice(1), 16);
  return (0xff000000 | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
}

/** Colours from the low end to the high end, SHADES of them. */
function shadesOf(matrix: Pick<BigMatrix, "kind">, palette: Palette): Uint32Array {
  if (matrix.kind === "pattern") return new Uint32Array(SHADES).fill(packed(palette.soft));
  const name: RampName = matrix.kind === "weight" ? "weight" : "score";
  const ramp = palette.ramps[name];
  const position = matrix.kind === "weight" ? weightPosition : signedPosition;
  const low = matrix.kind === "weight" ? 0 : -1;
  return Uint32Array.from({ length: SHADES }, (_, shade) => {
    const value = low + (shade / (SHADES - 1)) * (1 - low);
    const step = Math.round(clamp(position(value, 1), 0, 1) * (ramp.length - 1));
    return packed(ramp[step] as string);
  });
}

/** First cell of every pixel, and the end: pixels are wider than cells, or cells than pixels. */
function edges(from: number, count: number, pixels: number): Int32Array {
  return Int32Array.from(
    { length: pixels + 1 },
    (_, at) => from + Math.floor((at * count) / pixels),
  );
}

/**
 * The part as width x height pixels, 0 (transparent) where everything is hidden. A pixel that covers
 * several cells shows the one of largest magnitude: single bright cells stay visible.
 */
export function rasterise(
  matrix: BigMatrix,
  part: Part,
  palette: Palette,
  width: number,
  height: number,
): Uint32Array {
  const { values, columns, kind, limit } = matrix;
  const shades = shadesOf(matrix, palette);
  const [rowEdge, columnEdge] = [
    edges(part.row, part.rows, height),
    edges(part.column, part.columns, width),
  ];
  const low = kind === "weight" ? 0 : -limit;
  const toShade = (SHADES - 1) / (limit - low);
  const pixels = new Uint32Array(width * height);
  for (let y = 0; y < height; y++) {
    const firstRow = rowEdge[y] as number;
    const lastRow = Math.max(firstRow + 1, rowEdge[y + 1] as number);
    for (let x = 0; x < width; x++) {
      const first = columnEdge[x] as number;
      const last = Math.max(first + 1, columnEdge[x + 1] as number);
      let largest = -1;
      let signed = 0;
      for (let row = firstRow; row < lastRow; row++) {
        for (let at = row * columns + first; at < row * columns + last; at++) {
          const value = values[at] as number;
          const magnitude = value < 0 ? -value : value;
          if (magnitude > largest && magnitude !== Infinity) {
            largest = magnitude;
            signed = value;
          }
        }
      }
      const hidden = largest < 0 || (largest === 0 && kind !== "score");
      if (hidden) continue;
      pixels[y * width + x] = shades[
        clamp(Math.round((signed - low) * toShade), 0, SHADES - 1)
      ] as number;
    }
  }
  return pixels;
}

/** Pixels of weights from 0 to `limit`, 0 (transparent) where a value is NaN. */
export function colourWeights(
  values: Float32Array,
  limit: number,
  palette: Palette,
): Uint32Array<ArrayBuffer> {
  const shades = shadesOf({ kind: "weight" }, palette);
  const toShade = (SHADES - 1) / limit;
  const pixels = new Uint32Array(values.length);
  for (let at = 0; at < values.length; at++) {
    const value = values[at] as number;
    if (Number.isNaN(value)) continue;
    pixels[at] = shades[Math.min(SHADES - 1, Math.round(value * toShade))] as number;
  }
  return pixels;
}
