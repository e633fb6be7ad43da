// What a map of tiles needs to know of what it shows, and says to it.
import type { Cell } from "./matrix.js";
import type { Box, Pixels, Sight, Tile } from "./tile_map.js";

export interface TileSource {
  /** Rows, and columns. */
  readonly length: number;
  readonly sight: Sight;
  /** The tiles in sight. */
  readonly inSight: readonly Tile[];
  /** Changes whenever a tile arrives. */
  readonly version: number;
  /** The value at the strong end of the colours; 0 = none is known yet. */
  readonly limit: number;
  readonly pin: Cell | null;
  /** The size of the picture in CSS pixels. */
  fit(box: Box): void;
  look(sight: Sight): void;
  choose(cell: Cell | null): void;
  /** The tile, or the nearest above it that has arrived. */
  find(tile: Tile): { tile: Tile; pixels: Pixels } | null;
}
