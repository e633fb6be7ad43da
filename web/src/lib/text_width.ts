// How much room words take, so that every plot leaves as much beside it as its own labels need.
import { EM } from "./matrix_layout.js";
import { FONT_STACK } from "./scene.js";

let context: CanvasRenderingContext2D | null | undefined;

/** In CSS pixels, in the page's font; without a page as its letters are on average, and a little more. */
export function textWidth(text: string, size: number, bold: boolean = false): number {
  context ??=
    typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");
  if (!context) return [...text].length * size * EM;
  context.font = `${bold ? 600 : 400} ${size}px ${FONT_STACK}`;
  return context.measureText(text).width;
}

/** Other fonts, in which an SVG may be opened, are a little wider. */
const SLACK = 4;

/** The room for labels that stand one below the other. */
export const roomFor = (labels: readonly string[], size: number, bold: boolean = false): number =>
  Math.ceil(Math.max(0, ...labels.map((label) => textWidth(label, size, bold)))) + SLACK;
