// How a map of tiles is drawn: ground, tiles, axes, and the marks above them.
import { grouped } from "./format.js";
import { colourWeights } from "./heat_map.js";
import type { Cell } from "./matrix.js";
import { t } from "./messages.js";
import { hatchFill } from "./paint.js";
import type { Palette } from "./palette.js";
import { FONT_STACK } from "./scene.js";
import { type Box, type Pixels, type Sight, TILE, type Tile } from "./tile_map.js";
import type { TileSource } from "./tile_source.js";

export const MARGIN = { left: 60, top: 22 };
const [ROW, COLUMN] = [t`query`, t`key`];

/** A canvas for a box and its axes, cleared, in CSS pixels; what was clipped before is forgotten. */
export function sized(canvas: HTMLCanvasElement, box: Box): CanvasRenderingContext2D | null {
  const ratio = devicePixelRatio;
  const [across, down] = [box.width + MARGIN.left, box.height + MARGIN.top];
  canvas.width = Math.round(across * ratio);
  canvas.height = Math.round(down * ratio);
  canvas.style.width = `${across}px`;
  canvas.style.height = `${down}px`;
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** From here on nothing is drawn beside the map, and its corner is (0, 0). */
function toMap(context: CanvasRenderingContext2D, { width, height }: Box): void {
  context.translate(MARGIN.left, MARGIN.top);
  context.beginPath();
  context.rect(0, 0, width, height);
  context.clip();
}

/** Hatched where keys are hidden; empty where tiles are still to come. */
function drawGround(
  context: CanvasRenderingContext2D,
  sight: Sight,
  { width, height }: Box,
  palette: Palette,
): void {
  context.fillStyle = hatchFill(context, palette.hatch, devicePixelRatio);
  context.fillRect(0, 0, width, height);
  const diagonal = (sight.left - sight.top) / sight.scale;
  context.fillStyle = palette.background;
  context.beginPath();
  context.moveTo(0, diagonal);
  context.lineTo(0, Math.max(diagonal, height));
  context.lineTo(Math.max(0, height - diagonal), Math.max(diagonal, height));
  context.fill();
}

function drawAxes(
  context: CanvasRenderingContext2D,
  { sight, length }: TileSource,
  { width, height }: Box,
  { soft, faint }: Palette,
): void {
  const text = (words: string, x: number, y: number, align: CanvasTextAlign) => {
    context.textAlign = align;
    context.fillText(words, x, y);
  };
  const last = (from: number, pixels: number) =>
    grouped(Math.min(length, Math.ceil(from + pixels * sight.scale)));
  context.font = `11px ${FONT_STACK}`;
  context.fillStyle = soft;
  context.textBaseline = "middle";
  text(`${COLUMN} ${grouped(Math.floor(sight.left) + 1)}`, MARGIN.left, 10, "left");
  text(last(sight.left, width), MARGIN.left + width - 1, 10, "right");
  text(grouped(Math.floor(sight.top) + 1), MARGIN.left - 6, MARGIN.top + 6, "right");
  text(last(sight.top, height), MARGIN.left - 6, MARGIN.top + height - 6, "right");
  context.save();
  context.translate(12, MARGIN.top + height / 2);
  context.rotate(-Math.PI / 2);
  text(ROW, 0, 0, "center");
  context.restore();
  context.strokeStyle = faint;
  context.strokeRect(MARGIN.left - 0.5, MARGIN.top - 0.5, width, height);
}

/** Paints a source; keeps each tile in its colours, made once for each limit and theme. */
export class TilePainter {
  private readonly coloured = new WeakMap<
    Pixels,
    { limit: number; palette: Palette; image: OffscreenCanvas }
  >();

  paint(
    context: CanvasRenderingContext2D,
    source: TileSource,
    { box, palette }: { box: Box; palette: Palette },
  ): void {
    const { sight, inSight, limit } = source;
    context.fillStyle = palette.background;
    context.fillRect(0, 0, box.width + MARGIN.left, box.height + MARGIN.top);
    drawAxes(context, source, box, palette);
    toMap(context, box);
    drawGround(context, sight, box, palette);
    if (limit > 0) for (const tile of inSight) this.drawTile(context, tile, source, palette);
  }

  private imageOf(pixels: Pixels, limit: number, palette: Palette): OffscreenCanvas {
    const known = this.coloured.get(pixels);
    if (known?.limit === limit && known.palette === palette) return known.image;
    const image = known?.image ?? new OffscreenCanvas(TILE, TILE);
    const bytes = new Uint8ClampedArray(colourWeights(pixels.values, limit, palette).buffer);
    image.getContext("2d")?.putImageData(new ImageData(bytes, TILE, TILE), 0, 0);
    this.coloured.set(pixels, { limit, palette, image });
    return image;
  }

  /** The tile's part of its own picture, or of one that covers it. */
  private drawTile(
    context: CanvasRenderingContext2D,
    tile: Tile,
    source: TileSource,
    palette: Palette,
  ): void {
    const { sight, limit } = source;
    const found = source.find(tile);
    if (!found) return;
    const up = found.tile.level - tile.level;
    const part = TILE / 2 ** up;
    const within = (place: number) => (place - ((place >> up) << up)) * part;
    const span = TILE * 2 ** tile.level;
    context.imageSmoothingEnabled = sight.scale > 2 ** found.tile.level;
    context.drawImage(
      this.imageOf(found.pixels, limit, palette),
      within(tile.column),
      within(tile.row),
      part,
      part,
      (tile.column * span - sight.left) / sight.scale,
      (tile.row * span - sight.top) / sight.scale,
      span / sight.scale,
      span / sight.scale,
    );
  }
}

/** Row and column of the cell that is read, and a frame around the pinned one. */
export function paintMarks(
  context: CanvasRenderingContext2D,
  { sight, pin }: TileSource,
  cell: Cell | null,
  { box, palette }: { box: Box; palette: Palette },
): void {
  toMap(context, box);
  const { width, height } = box;
  const { ink, background } = palette;
  const x = (column: number) => (column - sight.left) / sight.scale;
  const y = (row: number) => (row - sight.top) / sight.scale;
  const one = 1 / sight.scale;
  const frame = (
    [left, top, wide, high]: readonly [number, number, number, number],
    stroke: string,
    line: number,
  ) => {
    context.strokeStyle = stroke;
    context.lineWidth = line;
    context.strokeRect(left, top, wide, high);
  };
  if (cell && one < 3) {
    frame([x(cell.column + 0.5), -2, 0, height + 4], ink, 1);
    frame([-2, y(cell.row + 0.5), width + 4, 0], ink, 1);
  } else if (cell) {
    frame([-2, y(cell.row) - 0.5, width + 4, one + 1], ink, 1);
    frame([x(cell.column) - 0.5, -2, one + 1, height + 4], ink, 1);
  }
  if (pin) {
    frame([x(pin.column) - 3, y(pin.row) - 3, one + 6, one + 6], background, 2);
    frame([x(pin.column) - 5, y(pin.row) - 5, one + 10, one + 10], ink, 2);
  }
}
