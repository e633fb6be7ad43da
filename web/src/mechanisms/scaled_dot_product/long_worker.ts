// The long head in a worker: tiles in the order in which the page wants them now, each step short
// enough that what the page no longer wants is given up soon.

import { load } from "heed";
import type { Backend } from "../../lib/backend.js";
import { nameOf, type Pixels, type Tile } from "../../lib/tile_map.js";
import { LongHead, type LongRow, PASSES } from "./long.js";

/** A tile that the page shows, and how well it knows it: samples each way, 0 = not at all. */
export interface Wanted {
  tile: Tile;
  samples: number;
}

/** `length` once, first. Of rows asked for meanwhile only the last is answered. */
export type Ask = { length: number } | { want: readonly Wanted[] } | { row: number };

export type Tell =
  | { backend: Backend }
  | { tile: Tile; pixels: Pixels }
  | { row: number; found: LongRow }
  | { problem: string };

const tell = (message: Tell, transfer: Transferable[] = []) =>
  self.postMessage(message, { transfer });

let head: LongHead | null = null;
let want: readonly Wanted[] = [];
let rowAsked: number | null = null;
let busy = false;

/** The first tile that the least pass of all can still improve. */
function next(): { tile: Tile; most: number } | null {
  for (const most of PASSES) {
    const found = want.find(({ tile, samples }) => samples < Math.min(2 ** tile.level, most));
    if (found) return { tile: found.tile, most };
  }
  return null;
}

const channel = new MessageChannel();
/** Lets messages in. */
const messages = () =>
  new Promise<void>((resolve) => {
    channel.port1.onmessage = () => resolve();
    channel.port2.postMessage(null);
  });

async function answerRow(from: LongHead): Promise<void> {
  const row = rowAsked;
  rowAsked = null;
  if (row === null) return;
  const found = await from.row(row);
  tell({ row, found }, [found.weights.buffer as ArrayBuffer]);
}

async function makeTile(from: LongHead, tile: Tile, most: number): Promise<void> {
  const name = nameOf(tile);
  const isIt = (wanted: Wanted) => nameOf(wanted.tile) === name;
  const pixels = await from.tile(tile, most, async () => {
    await messages();
    await answerRow(from);
    return !want.some(isIt);
  });
  if (!pixels) return;
  want = want.map((wanted) => (isIt(wanted) ? { tile, samples: pixels.samples } : wanted));
  tell({ tile, pixels }, [pixels.values.buffer as ArrayBuffer]);
}

async function work(from: LongHead): Promise<void> {
  busy = true;
  try {
    for (;;) {
      await messages();
      await answerRow(from);
      const job = next();
      if (!job) break;
      await makeTile(from, job.tile, job.most);
    }
  } finally {
    busy = false;
  }
}

async function begin(length: number): Promise<void> {
  const heed = await load();
  head = new LongHead(heed, length);
  tell({ backend: { simd: heed.simd, threads: heed.threads } });
}

self.onmessage = async ({ data }: MessageEvent<Ask>) => {
  try {
    if ("want" in data) want = data.want;
    else if ("row" in data) rowAsked = data.row;
    else await begin(data.length);
    if (head && !busy) await work(head);
  } catch (error) {
    tell({ problem: error instanceof Error ? error.message : String(error) });
  }
};
