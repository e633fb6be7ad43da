// Writes a scene as a standalone SVG document.
import { FONT_STACK, HATCH_STEP, type Scene, type Shape } from "./scene.js";

const ESCAPES: Record<string, string> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
};

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (mark) => ESCAPES[mark] ?? mark);
}

function number(value: number): string {
  return String(Math.round(value * 100) / 100);
}

function box(shape: { x: number; y: number; width: number; height: number }): string {
  const { x, y, width, height } = shape;
  return `x="${number(x)}" y="${number(y)}" width="${number(width)}" height="${number(height)}"`;
}

function shapeMarkup(shape: Shape): string {
  switch (shape.kind) {
    case "rect":
      return `<rect ${box(shape)} fill="${shape.fill}"/>`;
    case "hatch":
      return `<rect ${box(shape)} fill="url(#hatch)"/>`;
    case "frame":
      return `<rect ${box(shape)} fill="none" stroke="${shape.stroke}" stroke-width="${shape.line}"/>`;
    case "image":
      return `<image ${box(shape)} href="${shape.canvas.toDataURL()}"/>`;
    case "dot": {
      const line = shape.line === undefined ? "" : ` stroke-width="${number(shape.line)}"`;
      return `<circle cx="${number(shape.x)}" cy="${number(shape.y)}" r="${number(shape.radius)}" fill="${shape.fill}" stroke="${shape.stroke}"${line}/>`;
    }
    case "path": {
      const points = shape.points.map(([x, y]) => `${number(x)},${number(y)}`).join(" ");
      const dash = shape.dash ? ' stroke-dasharray="4 4"' : "";
      const ends = shape.round ? ' stroke-linecap="round"' : "";
      return `<polyline points="${points}" fill="none" stroke="${shape.stroke}" stroke-width="${number(shape.line)}" stroke-linejoin="round"${ends}${dash}/>`;
    }
    case "text": {
      const turn = shape.rotate
        ? ` transform="rotate(${shape.rotate} ${number(shape.x)} ${number(shape.y)})"`
        : "";
      const weight = shape.bold ? ' font-weight="600"' : "";
      const halo = shape.halo
        ? ` stroke="${shape.halo.colour}" stroke-width="${number(shape.halo.line)}" stroke-linejoin="round" paint-order="stroke"`
        : "";
      return `<text x="${number(shape.x)}" y="${number(shape.y)}" font-size="${number(shape.size)}" fill="${shape.fill}" text-anchor="${shape.anchor}" dominant-baseline="central"${weight}${halo}${turn}>${escaped(shape.text)}</text>`;
    }
  }
}

/** The document; `title` and `description` are what a screen reader announces. */
export function toSvg(scene: Scene, title: string, description: string): string {
  const { width, height } = scene;
  const step = HATCH_STEP;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${number(width)}" height="${number(height)}" viewBox="0 0 ${number(width)} ${number(height)}" role="img" font-family="${escaped(FONT_STACK)}">`,
    `<title>${escaped(title)}</title>`,
    `<desc>${escaped(description)}</desc>`,
    `<defs><pattern id="hatch" width="${step}" height="${step}" patternUnits="userSpaceOnUse"><path d="M-1,1 L1,-1 M0,${step} L${step},0 M${step - 1},${step + 1} L${step + 1},${step - 1}" stroke="${scene.hatch}" stroke-width="1"/></pattern></defs>`,
    `<rect width="${number(width)}" height="${number(height)}" fill="${scene.background}"/>`,
    ...scene.shapes.map(shapeMarkup),
    "</svg>",
    "",
  ].join("\n");
}
