// A picture as a list of shapes. The canvas on the page, the PNG and the SVG are painted from the
// same list, so what is exported is what was seen.

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export type Shape =
  | ({ kind: "rect"; fill: string } & Box)
  /** Diagonal hatching: a cell that is not there, as opposed to one whose value is zero. */
  | ({ kind: "hatch" } & Box)
  /** Pixels that were never shapes. */
  | ({ kind: "image"; canvas: HTMLCanvasElement } & Box)
  | ({ kind: "frame"; stroke: string; line: number } & Box)
  | {
      kind: "path";
      points: readonly (readonly [number, number])[];
      stroke: string;
      line: number;
      dash?: boolean;
      /** Ends that are half circles. */
      round?: boolean;
    }
  | Dot
  | TextShape;

interface Dot {
  kind: "dot";
  x: number;
  y: number;
  radius: number;
  /** "none": only its edge. */
  fill: string;
  stroke: string;
  /** Absent: 1. */
  line?: number;
}

export interface TextShape {
  kind: "text";
  x: number;
  y: number;
  text: string;
  size: number;
  fill: string;
  anchor: "start" | "middle" | "end";
  /** Degrees, clockwise, about (x, y). */
  rotate?: number;
  bold?: boolean;
  /** Painted around the letters, below them: words on lines or on hatching. */
  halo?: { colour: string; line: number };
}

export interface Scene {
  width: number;
  height: number;
  background: string;
  hatch: string;
  shapes: Shape[];
}

/** Side of the square that repeats to make the hatching. */
export const HATCH_STEP = 5;

export const FONT_STACK = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

/** The shapes moved by (dx, dy). */
export function moved(shapes: readonly Shape[], dx: number, dy: number): Shape[] {
  return shapes.map((shape) =>
    shape.kind === "path"
      ? { ...shape, points: shape.points.map(([x, y]) => [x + dx, y + dy] as const) }
      : { ...shape, x: shape.x + dx, y: shape.y + dy },
  );
}

/** Cuts a label that would not fit; the full word stays in the read-out and the table. */
export function shortened(label: string, limit: number): string {
  const letters = [...label];
  return letters.length <= limit ? label : `${letters.slice(0, Math.max(1, limit - 1)).join("")}…`;
}
