// What an <svg> of a page shows, as shapes: circles, lines and texts, in the colours and sizes that the page's
// styles give them now. Canvas and file are painted from shapes, so that a file needs no styles.
import type { Shape } from "./scene.js";

/** A colour of a computed style, or null where nothing is painted. */
export function colourOf(paint: string): string | null {
  return /^(none|transparent|rgba\(0, 0, 0, 0\))$/.test(paint) ? null : paint;
}

/** From the units of an element to the CSS pixels of a picture that begins at `from`. */
interface Place {
  x: (x: number, y: number) => number;
  y: (x: number, y: number) => number;
  scale: number;
}

function placeOf(element: SVGGraphicsElement, from: DOMRect): Place | null {
  const to = element.getScreenCTM();
  if (!to) return null;
  return {
    x: (x, y) => to.a * x + to.c * y + to.e - from.left,
    y: (x, y) => to.b * x + to.d * y + to.f - from.top,
    scale: Math.sqrt(Math.abs(to.a * to.d - to.b * to.c)),
  };
}

const pixels = (length: string) => Number.parseFloat(length) || 0;

function circleShape(circle: SVGCircleElement, style: CSSStyleDeclaration, at: Place): Shape[] {
  const [x, y] = [circle.cx.baseVal.value, circle.cy.baseVal.value];
  const fill = colourOf(style.fill);
  const stroke = colourOf(style.stroke);
  if (fill === null && stroke === null) return [];
  return [
    {
      kind: "dot",
      x: at.x(x, y),
      y: at.y(x, y),
      radius: circle.r.baseVal.value * at.scale,
      fill: fill ?? "none",
      stroke: stroke ?? "none",
      line: pixels(style.strokeWidth) * at.scale,
    },
  ];
}

function lineShape(line: SVGLineElement, style: CSSStyleDeclaration, at: Place): Shape[] {
  const stroke = colourOf(style.stroke);
  if (stroke === null) return [];
  const ends = [
    [line.x1.baseVal.value, line.y1.baseVal.value],
    [line.x2.baseVal.value, line.y2.baseVal.value],
  ] as const;
  return [
    {
      kind: "path",
      points: ends.map(([x, y]) => [at.x(x, y), at.y(x, y)] as const),
      stroke,
      line: pixels(style.strokeWidth) * at.scale,
      round: style.strokeLinecap === "round",
    },
  ];
}

const ANCHORS: Record<string, "start" | "middle" | "end"> = { middle: "middle", end: "end" };

function textShape(text: SVGTextElement, style: CSSStyleDeclaration, at: Place): Shape[] {
  const first = (list: SVGAnimatedLengthList) =>
    list.baseVal.numberOfItems > 0 ? list.baseVal.getItem(0).value : 0;
  const [x, y] = [first(text.x), first(text.y)];
  const halo = colourOf(style.stroke);
  return [
    {
      kind: "text",
      x: at.x(x, y),
      y: at.y(x, y),
      text: text.textContent ?? "",
      size: pixels(style.fontSize) * at.scale,
      fill: style.fill,
      anchor: ANCHORS[style.textAnchor] ?? "start",
      bold: Number(style.fontWeight) >= 600,
      ...(halo ? { halo: { colour: halo, line: pixels(style.strokeWidth) * at.scale } } : {}),
    },
  ];
}

function shapesOf(element: Element, from: DOMRect): Shape[] {
  if (!(element instanceof SVGGraphicsElement)) return [];
  const style = getComputedStyle(element);
  const at = style.visibility === "visible" ? placeOf(element, from) : null;
  if (!at) return [];
  if (element instanceof SVGCircleElement) return circleShape(element, style, at);
  if (element instanceof SVGLineElement) return lineShape(element, style, at);
  if (element instanceof SVGTextElement) return textShape(element, style, at);
  return [];
}

/** In CSS pixels from the corner of `from`, in the order in which they are painted. */
export const drawnShapes = (svg: SVGSVGElement, from: DOMRect): Shape[] =>
  [...svg.querySelectorAll("*")].flatMap((element) => shapesOf(element, from));
