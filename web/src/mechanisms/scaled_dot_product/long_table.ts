// The part of the long map that is in sight as a table: means over blocks, cells where they are few.

import type { Rows } from "../../lib/file.js";
import { grouped, scientific } from "../../lib/format.js";
import { t } from "../../lib/messages.js";
import type { LongMap } from "./long_map.svelte.js";

const BLOCKS = 8;

/** First pixel of each block and the end, at the level in sight; all blocks are whole pixels. */
function edges(from: number, cells: number, span: number, side: number): number[] {
  const first = Math.floor(from / span);
  const end = Math.ceil(Math.min(side, from + cells) / span);
  const count = Math.min(BLOCKS, end - first);
  return Array.from(
    { length: count + 1 },
    (_, at) => first + Math.round((at * (end - first)) / count),
  );
}

/** The mean over the pixels of a block that are not hidden; undefined while one is still to come. */
function meanOf(map: LongMap, rows: readonly [number, number], columns: readonly [number, number]) {
  const span = 2 ** map.level;
  let [sum, count] = [0, 0];
  for (let row = rows[0]; row < rows[1]; row++) {
    for (let column = columns[0]; column < columns[1]; column++) {
      if (column > row) continue;
      const value = map.valueAt({ row: row * span, column: column * span });
      if (value === undefined) return undefined;
      if (Number.isNaN(value)) continue;
      sum += value;
      count++;
    }
  }
  return sum / count;
}

function cellText(value: number | undefined): string {
  if (value === undefined) return "…";
  return Number.isNaN(value) ? t`hidden` : scientific(value);
}

/** At most 8 x 8 blocks. */
export function blocksOf(map: LongMap): Rows {
  void map.version;
  const { sight, box, level, length } = map;
  const span = 2 ** level;
  const rows = edges(sight.top, box.height * sight.scale, span, length);
  const columns = edges(sight.left, box.width * sight.scale, span, length);
  const pairs = (all: number[]) => all.slice(1).map((end, at) => [all[at] as number, end] as const);
  const name = (what: string, [first, end]: readonly [number, number]) => {
    const [from, to] = [first * span + 1, Math.min(length, end * span)];
    return from === to ? `${what} ${grouped(from)}` : t`${what} ${grouped(from)} to ${grouped(to)}`;
  };
  return {
    columns: [t`mean weight`, ...pairs(columns).map((pair) => name("key", pair))],
    rows: pairs(rows).map((own) => [
      name("query", own),
      ...pairs(columns).map((pair) => cellText(meanOf(map, own, pair))),
    ]),
  };
}
