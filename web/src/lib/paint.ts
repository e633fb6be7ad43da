// Paints a scene on a canvas, sharp at any device pixel ratio.
import { FONT_STACK, HATCH_STEP, type Scene, type Shape, type TextShape } from "./scene.js";

const tiles = new Map<string, HTMLCanvasElement>();

/** The square that repeats; drawn once per colour and pixel ratio. */
function hatchTile(colour: string, ratio: number): HTMLCanvasElement {
  const known = tiles.get(`${colour} ${ratio}`);
  if (known) return known;
  const tile = document.createElement("canvas");
  tiles.set(`${colour} ${ratio}`, tile);
  const side = Math.max(2, Math.round(HATCH_STEP * ratio));
  tile.width = side;
  tile.height = side;
  const pen = tile.getContext("2d");
  if (!pen) return tile;
  pen.strokeStyle = colour;
  pen.lineWidth = ratio;
  // Three strokes, so that the line continues across the corners of neighbouring tiles.
  for (const shift of [-side, 0, side]) {
    pen.moveTo(shift - 1, side + 1);
    pen.lineTo(shift + side + 1, -1);
  }
  pen.stroke();
  return tile;
}

/** The hatching as a fill; coordinates of `context` are CSS pixels. */
export function hatchFill(
  context: CanvasRenderingContext2D,
  colour: string,
  ratio: number,
): CanvasPattern | string {
  const pattern = context.createPattern(hatchTile(colour, ratio), "repeat");
  pattern?.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern ?? colour;
}

function hatchPattern(context: CanvasRenderingContext2D, scene: Scene, ratio: number) {
  if (!scene.shapes.some((shape) => shape.kind === "hatch")) return scene.hatch;
  return hatchFill(context, scene.hatch, ratio);
}

function paintText(context: CanvasRenderingContext2D, shape: TextShape) {
  context.font = `${shape.bold ? 600 : 400} ${shape.size}px ${FONT_STACK}`;
  context.fillStyle = shape.fill;
  context.textAlign = shape.anchor === "middle" ? "center" : shape.anchor;
  context.textBaseline = "middle";
  context.save();
  context.translate(shape.x, shape.y);
  if (shape.rotate) context.rotate((shape.rotate * Math.PI) / 180);
  if (shape.halo) {
    context.strokeStyle = shape.halo.colour;
    context.lineWidth = shape.halo.line;
    context.lineJoin = "round";
    context.strokeText(shape.text, 0, 0);
  }
  context.fillText(shape.text, 0, 0);
  context.restore();
}

function paintPath(context: CanvasRenderingContext2D, shape: Extract<Shape, { kind: "path" }>) {
  context.beginPath();
  for (const [x, y] of shape.points) context.lineTo(x, y);
  context.strokeStyle = shape.stroke;
  context.lineWidth = shape.line;
  context.lineJoin = "round";
  context.lineCap = shape.round ? "round" : "butt";
  context.setLineDash(shape.dash ? [4, 4] : []);
  context.stroke();
  context.setLineDash([]);
}

function paintDot(context: CanvasRenderingContext2D, shape: Extract<Shape, { kind: "dot" }>) {
  context.beginPath();
  context.arc(shape.x, shape.y, shape.radius, 0, 2 * Math.PI);
  if (shape.fill !== "none") {
    context.fillStyle = shape.fill;
    context.fill();
  }
  if (shape.stroke !== "none") {
    context.strokeStyle = shape.stroke;
    context.lineWidth = shape.line ?? 1;
    context.stroke();
  }
}

function paintShape(
  context: CanvasRenderingContext2D,
  shape: Shape,
  hatch: CanvasPattern | string,
) {
  switch (shape.kind) {
    case "rect":
    case "hatch":
      context.fillStyle = shape.kind === "rect" ? shape.fill : hatch;
      context.fillRect(shape.x, shape.y, shape.width, shape.height);
      break;
    case "image":
      context.drawImage(shape.canvas, shape.x, shape.y, shape.width, shape.height);
      break;
    case "frame":
      context.strokeStyle = shape.stroke;
      context.lineWidth = shape.line;
      context.strokeRect(shape.x, shape.y, shape.width, shape.height);
      break;
    case "dot":
      paintDot(context, shape);
      break;
    case "path":
      paintPath(context, shape);
      break;
    case "text":
      paintText(context, shape);
  }
}

const painted = new WeakMap<HTMLCanvasElement, Scene>();

/** The scene that was painted last, for whoever makes a file of it. */
export const sceneOn = (canvas: HTMLCanvasElement): Scene | undefined => painted.get(canvas);

/** Sizes `canvas` to the scene (in CSS pixels) and paints it. */
export function paint(canvas: HTMLCanvasElement, scene: Scene, ratio = devicePixelRatio): void {
  painted.set(canvas, scene);
  const width = Math.max(1, Math.round(scene.width * ratio));
  const height = Math.max(1, Math.round(scene.height * ratio));
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.style.width = `${scene.width}px`;
  canvas.style.height = `${scene.height}px`;
  const context = canvas.getContext("2d");
  if (!context) return;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = scene.background;
  context.fillRect(0, 0, scene.width, scene.height);
  const hatch = hatchPattern(context, scene, ratio);
  for (const shape of scene.shapes) paintShape(context, shape, hatch);
}
