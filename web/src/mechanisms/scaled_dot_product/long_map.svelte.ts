// What the page knows of the long map: which part is in sight, the tiles that have arrived, the row
// that was asked for. Tiles come from a worker; at most KEPT of them are held.

import type { Backend } from "../../lib/backend.js";
import type { Cell } from "../../lib/matrix.js";
import { t } from "../../lib/messages.js";
import {
  ancestor,
  type Box,
  inside,
  levelOf,
  nameOf,
  type Pixels,
  type Sight,
  TILE,
  type Tile,
  tilesIn,
  topLevel,
} from "../../lib/tile_map.js";
import type { LongRow } from "./long.js";
import { type Place, sightAt } from "./long_place.js";
import type { Ask, Tell, Wanted } from "./long_worker.js";

/** 96 tiles of 256 KB and as much again for their colours: 48 MB. */
const KEPT = 96;
/** Of the pixels in sight, this share is no brighter than the end of the colours. */
const BRIGHT = 0.995;

/** The least of 1, 1.5, 2, 3, 5, 7 times a power of ten that is not below `value`. */
export function roundLimit(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 1.5, 2, 3, 5, 7, 10].find((factor) => factor * power >= value * 0.999) ?? 10;
  return Number((step * power).toPrecision(2));
}

export class LongMap {
  sight = $state.raw<Sight>({ top: 0, left: 0, scale: 1 });
  box = $state.raw<Box>({ width: 0, height: 0 });
  pin = $state.raw<Cell | null>(null);
  row = $state.raw<(LongRow & { row: number }) | null>(null);
  backend = $state.raw<Backend | null>(null);
  problem = $state<string | null>(null);
  /** Grows with every tile that arrives. */
  version = $state(0);
  /** The value at the strong end of the colours. */
  limit = $state(0);
  private readonly tiles = new Map<string, Pixels>();
  private readonly worker: Worker;

  readonly length: number;

  /** `start` is in sight as soon as the picture has a size. */
  constructor(private readonly start: Place) {
    const { length } = start;
    this.length = length;
    this.worker = new Worker(new URL("./long_worker.ts", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }: MessageEvent<Tell>) => this.hear(data);
    this.worker.onerror = (event) => {
      this.problem = event.message || t`the worker did not start`;
    };
    this.ask({ length });
  }

  end(): void {
    this.worker.terminate();
  }

  readonly level = $derived.by(() => levelOf(this.sight.scale, this.length));

  fit(box: Box): void {
    const first = this.box.width === 0;
    this.box = box;
    this.look(first ? sightAt(this.start, box) : this.sight);
  }

  look(sight: Sight): void {
    this.sight = inside(sight, this.length, this.box);
    this.want();
  }

  choose(pin: Cell | null): void {
    this.pin = pin;
    if (pin) this.ask({ row: pin.row });
    else this.row = null;
  }

  /** The tile, or the nearest above it that has arrived. */
  find(tile: Tile): { tile: Tile; pixels: Pixels } | null {
    for (let up = 0; tile.level + up <= topLevel(this.length); up++) {
      const above = ancestor(tile, up);
      const pixels = this.tiles.get(nameOf(above));
      if (pixels) return { tile: above, pixels };
    }
    return null;
  }

  /** Of the pixel over a cell, at this sight's level; undefined until it has arrived. */
  valueAt({ row, column }: Cell): number | undefined {
    void this.version;
    const span = 2 ** this.level;
    const [y, x] = [Math.floor(row / span), Math.floor(column / span)];
    const place = { level: this.level, row: Math.floor(y / TILE), column: Math.floor(x / TILE) };
    return this.tiles.get(nameOf(place))?.values[(y % TILE) * TILE + (x % TILE)];
  }

  readonly inSight = $derived.by(() =>
    this.box.width > 0 ? tilesIn(this.sight, this.length, this.box) : [],
  );

  /** What the pixels in sight are made of; null until all have arrived. */
  readonly quality = $derived.by(() => {
    void this.version;
    const known = this.inSight.map((tile) => this.tiles.get(nameOf(tile)));
    if (known.includes(undefined)) return null;
    const all = known as Pixels[];
    const samples = Math.min(...all.map((pixels) => pixels.samples));
    const error = Math.max(0, ...all.map((pixels) => pixels.error));
    return { samples, error, exact: samples === 2 ** this.level };
  });

  private ask(message: Ask): void {
    this.worker.postMessage(message);
  }

  /** The tile of the whole map first: it stands in for all that is still to come. */
  private want(): void {
    const whole = { level: topLevel(this.length), row: 0, column: 0 };
    const wanted = [whole, ...this.inSight].map((tile): Wanted => {
      const known = this.tiles.get(nameOf(tile));
      if (known) this.keep(tile, known);
      return { tile, samples: known?.samples ?? 0 };
    });
    this.ask({ want: wanted });
    this.scaleColours();
  }

  /** Last in the order of use; the first goes. */
  private keep(tile: Tile, pixels: Pixels): void {
    const name = nameOf(tile);
    this.tiles.delete(name);
    this.tiles.set(name, pixels);
    if (this.tiles.size > KEPT) this.tiles.delete(this.tiles.keys().next().value as string);
  }

  private scaleColours(): void {
    const found: number[] = [];
    for (const tile of this.inSight) {
      const values = this.tiles.get(nameOf(tile))?.values ?? [];
      for (let at = 0; at < values.length; at += 61) {
        if ((values[at] as number) >= 0) found.push(values[at] as number);
      }
    }
    found.sort((a, b) => a - b);
    const bright = found[Math.floor(found.length * BRIGHT)];
    if (bright) this.limit = roundLimit(bright);
  }

  private hear(news: Tell): void {
    if ("backend" in news) this.backend = news.backend;
    else if ("tile" in news) {
      this.keep(news.tile, news.pixels);
      this.version++;
      this.scaleColours();
    } else if ("row" in news) {
      if (news.row === this.pin?.row) this.row = { row: news.row, ...news.found };
    } else this.problem = news.problem;
  }
}
