// How much room words take, so that every plot leaves as much beside it as its own labels need.
import { FONT_STACK } from "./scene.js";

/** Width of a letter, in font sizes. */
export const EM = 0.6;

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

/** The label, or as much of its beginning as there is room for; the full word stays in the table. */
export function shortenedTo(
  label: string,
  room: number,
  size: number,
  bold: boolean = false,
): string {
  if (textWidth(label, size, bold) <= room) return label;
  const letters = [...label];
  const cut = (count: number) => `${letters.slice(0, count).join("")}…`;
  let count = letters.length - 1;
  while (count > 1 && textWidth(cut(count), size, bold) > room) count--;
  return cut(count);
}

/** Where a word that is wider than a line is broken rather than between other letters. */
const BREAKS = /[/|_&]/;

function brokenWord(word: string, fits: (text: string) => boolean): string[] {
  const lines: string[] = [];
  let letters = [...word];
  while (letters.length > 1 && !fits(letters.join(""))) {
    let count = 1;
    while (fits(letters.slice(0, count + 1).join(""))) count++;
    const mark = letters.slice(0, count).findLastIndex((letter) => BREAKS.test(letter));
    const end = mark < 0 ? count : mark + 1;
    lines.push(letters.slice(0, end).join(""));
    letters = letters.slice(end);
  }
  return [...lines, letters.join("")];
}

/** The text in lines that are no wider than `room`; what no-break spaces join stays together. */
export function linesWithin(
  text: string,
  room: number,
  size: number,
  bold: boolean = false,
): string[] {
  const fits = (line: string) => textWidth(line, size, bold) <= room;
  const lines: string[] = [];
  for (const word of text.split(/[ \t\n]+/).filter((part) => part !== "")) {
    const longer = `${lines.at(-1)} ${word}`;
    if (lines.length > 0 && fits(longer)) lines[lines.length - 1] = longer;
    else lines.push(...brokenWord(word, fits));
  }
  return lines;
}
