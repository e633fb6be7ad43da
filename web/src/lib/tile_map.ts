// Geometry of a square map too large to hold: tiles of a pyramid, and what of it is in sight. A tile
// of level L is TILE x TILE pixels, each of which covers 2^L x 2^L cells.

export const TILE = 256;

export interface Tile {
  level: number;
  /** Place among the tiles of its level. */
  row: number;
  column: number;
}

/** Values of a tile's pixels. */
export interface Pixels {
  /** [TILE, TILE]; NaN where every cell is hidden or outside. */
  values: Float32Array;
  /** Rows and columns of cells looked at under each pixel; 2^level = all of them. */
  samples: number;
  /** Estimate of mean |error| over mean value; 0 where all cells were looked at. */
  error: number;
}

/** What is in sight: the corner's cell, with fractions, and how many cells a CSS pixel covers. */
export interface Sight {
  top: number;
  left: number;
  scale: number;
}

export interface Box {
  width: number;
  height: number;
}

/** A CSS pixel shows at least this much of a cell. */
const LEAST_SCALE = 1 / 48;

export const nameOf = ({ level, row, column }: Tile): string => `${level}/${row}/${column}`;

/** The level at which the whole map is one tile. */
export const topLevel = (side: number): number => Math.max(0, Math.ceil(Math.log2(side / TILE)));

const clamp = (value: number, low: number, high: number) => Math.max(low, Math.min(high, value));

/** The level whose pixels are nearest to CSS pixels: 0.7 to 1.4 of them. */
export const levelOf = (scale: number, side: number): number =>
  clamp(Math.round(Math.log2(scale)), 0, topLevel(side));

const wholeScale = (side: number, box: Box): number => side / Math.min(box.width, box.height);

export const wholeSight = (side: number, box: Box): Sight => ({
  top: 0,
  left: 0,
  scale: wholeScale(side, box),
});

/** The nearest sight that shows no more than the map, and no cell larger than LEAST_SCALE allows. */
export function inside(sight: Sight, side: number, box: Box): Sight {
  const scale = clamp(
    sight.scale,
    Math.min(LEAST_SCALE, wholeScale(side, box)),
    wholeScale(side, box),
  );
  const most = (pixels: number) => Math.max(0, side - pixels * scale);
  return {
    scale,
    top: clamp(sight.top, 0, most(box.height)),
    left: clamp(sight.left, 0, most(box.width)),
  };
}

/** Scaled about the point (x, y) of the box, which keeps its cell. */
export const scaledSight = (sight: Sight, factor: number, x: number, y: number): Sight => ({
  scale: sight.scale * factor,
  top: sight.top + y * sight.scale * (1 - factor),
  left: sight.left + x * sight.scale * (1 - factor),
});

/** Moved as little as brings the cell into the box. */
export function sightWith(sight: Sight, row: number, column: number, box: Box): Sight {
  const [rows, columns] = [box.height * sight.scale, box.width * sight.scale];
  return {
    ...sight,
    top: clamp(sight.top, row + 1 - rows, row),
    left: clamp(sight.left, column + 1 - columns, column),
  };
}

/** Whether a causal map has anything in the tile. */
const isBelowDiagonal = ({ row, column }: Tile): boolean => column <= row;

/** The tiles in sight that have visible cells, from the middle outwards. */
export function tilesIn(sight: Sight, side: number, box: Box): Tile[] {
  const level = levelOf(sight.scale, side);
  const span = TILE * 2 ** level;
  const range = (from: number, pixels: number) => ({
    first: Math.floor(from / span),
    last: Math.floor(Math.min(side - 1, from + pixels * sight.scale) / span),
    middle: (from + (pixels * sight.scale) / 2) / span - 0.5,
  });
  const [rows, columns] = [range(sight.top, box.height), range(sight.left, box.width)];
  const tiles: Tile[] = [];
  for (let row = rows.first; row <= rows.last; row++) {
    for (let column = columns.first; column <= columns.last; column++) {
      tiles.push({ level, row, column });
    }
  }
  const distance = (tile: Tile) => Math.hypot(tile.row - rows.middle, tile.column - columns.middle);
  return tiles.filter(isBelowDiagonal).sort((a, b) => distance(a) - distance(b));
}

/** The tile `up` levels above that covers this one. */
export const ancestor = ({ level, row, column }: Tile, up: number): Tile => ({
  level: level + up,
  row: row >> up,
  column: column >> up,
});

/** A whole number in [0, 2^32) that looks random, from three. */
function mixed(a: number, b: number, c: number): number {
  let word = Math.imul(a + 1, 0x9e3779b1) ^ Math.imul(b + 1, 0x85ebca6b) ^ Math.imul(c, 0xc2b2ae35);
  word = Math.imul(word ^ (word >>> 15), 0x2c1b3c6d);
  word = Math.imul(word ^ (word >>> 12), 0x297a2d39);
  return (word ^ (word >>> 15)) >>> 0;
}

/** Drawn apart: were they the same places, every cell of the diagonal would be looked at. */
export type Axis = "rows" | "columns";

/**
 * One of the 2^power places of a stratum, drawn evenly and for good: half by half, so that the place
 * drawn from a stratum is also the one drawn from the half that holds it. Finer levels use again what
 * coarser ones have computed.
 */
function drawn(axis: Axis, power: number, stratum: number): number {
  const stream = axis === "rows" ? 0 : 1;
  let place = stratum;
  for (let left = power; left > 0; left--) place = 2 * place + (mixed(left, place, stream) & 1);
  return place;
}

/** The rows or columns looked at for the pixels of a tile, in order, up to `side`. */
export function placesOf(
  axis: Axis,
  { level, row, column }: Tile,
  samples: number,
  side: number,
): Int32Array {
  const power = level - Math.log2(samples);
  const first = (axis === "rows" ? row : column) * TILE * samples;
  const places = new Int32Array(TILE * samples);
  let count = 0;
  for (let at = 0; at < places.length; at++) {
    const place = drawn(axis, power, first + at);
    // Only at the end of the map; a stratum that straddles the end may lose its place.
    if (place < side) places[count++] = place;
  }
  return places.subarray(0, count);
}
