// What the HTML of a picture shows beside its canvases and drawings, as shapes: words where the page has them, in
// its colours; boxes that are filled or have edges, which are bars and the mark of what is chosen; sliders.
import type { Palette } from "./palette.js";
import type { Shape } from "./scene.js";
import { colourOf } from "./svg_shapes.js";

/** What is only heard, and what has words of its own. */
const ASIDE = ".spoken, svg, select, option, textarea";
/** Buttons and switches are the page's, unless they hold a picture. */
const CONTROLS = "button, label";

function isPainted(element: HTMLElement): boolean {
  if (element.closest(ASIDE) || !element.checkVisibility({ visibilityProperty: true }))
    return false;
  const control = element.closest(CONTROLS);
  return control === null || control.querySelector("canvas") !== null;
}

/** A line of a text, and where it stands. */
interface Line {
  text: string;
  left: number;
  middle: number;
}

/** The words of a text in the lines that the page breaks it into. */
function linesOf(text: Text): Line[] {
  const lines: Line[] = [];
  const range = document.createRange();
  for (const { 0: word, index } of text.data.matchAll(/[^ \t\n]+/g)) {
    range.setStart(text, index);
    range.setEnd(text, index + word.length);
    const { left, top, bottom } = range.getBoundingClientRect();
    const middle = (top + bottom) / 2;
    const last = lines.at(-1);
    if (last && Math.abs(last.middle - middle) < 1) last.text += ` ${word}`;
    else lines.push({ text: word, left, middle });
  }
  return lines;
}

/** Every word of `picture`, in CSS pixels from the corner of `from`. */
export function wordShapes(picture: HTMLElement, from: DOMRect): Shape[] {
  const shapes: Shape[] = [];
  const walker = document.createTreeWalker(picture, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!(node instanceof Text) || !(parent instanceof HTMLElement)) continue;
    if (node.data.trim() === "" || !isPainted(parent)) continue;
    const { color, fontSize, fontWeight } = getComputedStyle(parent);
    for (const { text, left, middle } of linesOf(node)) {
      shapes.push({
        kind: "text",
        x: left - from.left,
        y: middle - from.top,
        text,
        size: Number.parseFloat(fontSize),
        fill: color,
        anchor: "start",
        bold: Number(fontWeight) >= 600,
      });
    }
  }
  return shapes;
}

const SIDES = ["Top", "Right", "Bottom", "Left"] as const;

/** The edges of a box that have a line. */
function edgesOf(style: CSSStyleDeclaration, box: DOMRect): Shape[] {
  return SIDES.flatMap((side): Shape[] => {
    const line = Number.parseFloat(style[`border${side}Width`]);
    const fill = colourOf(style[`border${side}Color`]);
    if (line === 0 || style[`border${side}Style`] === "none" || fill === null) return [];
    const flat = side === "Top" || side === "Bottom";
    return [
      {
        kind: "rect",
        x: side === "Right" ? box.right - line : box.left,
        y: side === "Bottom" ? box.bottom - line : box.top,
        width: flat ? box.width : line,
        height: flat ? line : box.height,
        fill,
      },
    ];
  });
}

/** Every filled box of `picture` and the edges of every box, in CSS pixels from the corner of `from`. */
export function boxShapes(picture: HTMLElement, from: DOMRect): Shape[] {
  return [...picture.querySelectorAll<HTMLElement>("*")].flatMap((element): Shape[] => {
    if (!(element instanceof HTMLElement) || element.matches("canvas, input")) return [];
    if (!isPainted(element)) return [];
    const style = getComputedStyle(element);
    const { left, top, width, height } = element.getBoundingClientRect();
    const box = new DOMRect(left - from.left, top - from.top, width, height);
    if (width === 0 || height === 0) return [];
    const fill = colourOf(style.backgroundColor);
    const filled: Shape[] =
      fill === null ? [] : [{ kind: "rect", x: box.x, y: box.y, width, height, fill }];
    return [...filled, ...edgesOf(style, box)];
  });
}

/** As styles/base.css has it. */
const THUMB = 16;
const TRACK = 2;

function sliderShapes(slider: HTMLInputElement, from: DOMRect, palette: Palette): Shape[] {
  const { left, top, width, height } = slider.getBoundingClientRect();
  const [x, y] = [left - from.left, top - from.top];
  const [min, max] = [Number(slider.min), Number(slider.max)];
  const share = (slider.valueAsNumber - min) / (max - min);
  const isUpright = height > width;
  const [middleX, middleY] = [x + width / 2, y + height / 2];
  const track = isUpright
    ? { x: middleX - TRACK / 2, y, width: TRACK, height }
    : { x, y: middleY - TRACK / 2, width, height: TRACK };
  const thumb = isUpright
    ? { x: middleX, y: y + height - THUMB / 2 - share * (height - THUMB) }
    : { x: x + THUMB / 2 + share * (width - THUMB), y: middleY };
  const colours = { fill: palette.ink, stroke: palette.background };
  return [
    { kind: "rect", ...track, fill: palette.hatch },
    { kind: "dot", ...thumb, radius: THUMB / 2 - 1, ...colours, line: 2 },
  ];
}

/** Every slider of `picture`: a row of scores to drag is a picture of scores. */
export const slidersIn = (picture: HTMLElement, from: DOMRect, palette: Palette): Shape[] =>
  [...picture.querySelectorAll<HTMLInputElement>('input[type="range"]')].flatMap((slider) =>
    sliderShapes(slider, from, palette),
  );
