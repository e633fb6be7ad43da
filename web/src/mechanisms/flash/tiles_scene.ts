// The picture of a walk over tiles: scores as bars, the running maximum as a staircase, the running
// sum below it; tiles that are still to come are hatched.
import { fixed } from "../../lib/format.js";
import { t } from "../../lib/messages.js";
import type { Palette } from "../../lib/palette.js";
import { rampColour } from "../../lib/ramp.js";
import type { Scene, Shape } from "../../lib/scene.js";
import { textWidth } from "../../lib/text_width.js";
import { KEYS, TILE, TILES, type Walk } from "./tiles.js";

const LEFT = 52;
const RIGHT = 12;
/** Two lines: what the bars are, and the name of the line where it is highest. */
const TOP = 38;
const SCORES_HEIGHT = 190;
const GAP = 44;
const SUM_HEIGHT = 84;
const SIZE = 12;

export const TILES_HEIGHT = TOP + SCORES_HEIGHT + GAP + SUM_HEIGHT + 36;

/** The tile under a horizontal position in CSS pixels, or null. */
export function tileAt(x: number, width: number): number | null {
  const tile = Math.floor(((x - LEFT) / (width - LEFT - RIGHT)) * TILES);
  return tile >= 0 && tile < TILES ? tile : null;
}

export function tilesScene(walk: Walk, step: number, palette: Palette, width: number): Scene {
  const inner = width - LEFT - RIGHT;
  const x = (key: number) => LEFT + (key / KEYS) * inner;
  const top = Math.max(...walk.max, 1);
  const bottom = Math.min(...walk.scores, -1);
  const y = (score: number) => TOP + ((top - score) / (top - bottom)) * SCORES_HEIGHT;
  const sumBottom = TOP + SCORES_HEIGHT + GAP + SUM_HEIGHT;
  const largestSum = Math.max(...walk.sum);
  const sumY = (sum: number) => sumBottom - (sum / largestSum) * SUM_HEIGHT;
  const shapes: Shape[] = [];
  const text = (words: string, at: number, height: number, rest: object = {}) =>
    shapes.push({
      kind: "text",
      x: at,
      y: height,
      text: words,
      size: SIZE,
      fill: palette.soft,
      anchor: "start",
      ...rest,
    });
  const line = (points: [number, number][], stroke: string, wide: number) =>
    shapes.push({ kind: "path", points, stroke, line: wide });

  text(t`score of each key`, 0, 10);
  text(t`running sum ℓ`, 0, TOP + SCORES_HEIGHT + GAP - 14);
  line(
    [
      [LEFT, y(0)],
      [width - RIGHT, y(0)],
    ],
    palette.faint,
    1,
  );
  text("0", LEFT - 8, y(0), { anchor: "end" });
  text(fixed(top, 1), LEFT - 8, y(top), { anchor: "end" });

  const seenTo = (step + 1) * TILE;
  const middle = rampColour(palette.ramps.key, 0.8);
  for (let key = 0; key < seenTo; key++) {
    const score = walk.scores[key] as number;
    const now = key >= step * TILE;
    const box = { x: x(key), width: Math.max(0.6, inner / KEYS), y: y(Math.max(0, score)) };
    const fill = now ? (palette.ramps.key.at(-1) as string) : middle;
    shapes.push({ kind: "rect", fill, height: Math.max(0.5, Math.abs(y(score) - y(0))), ...box });
  }
  if (seenTo < KEYS) {
    const hidden = { x: x(seenTo), width: width - RIGHT - x(seenTo) };
    shapes.push({ kind: "hatch", y: TOP, height: SCORES_HEIGHT, ...hidden });
    shapes.push({ kind: "hatch", y: sumBottom - SUM_HEIGHT, height: SUM_HEIGHT, ...hidden });
  }
  // Not across the words between the two plots.
  const spans = [
    [TOP, TOP + SCORES_HEIGHT],
    [sumBottom - SUM_HEIGHT, sumBottom],
  ] as const;
  for (let tile = 0; tile <= TILES; tile++) {
    const at = x(tile * TILE);
    for (const [from, to] of spans) {
      line(
        [
          [at, from],
          [at, to],
        ],
        palette.faint,
        1,
      );
    }
    if (tile === TILES) break;
    const style = {
      anchor: "middle",
      fill: tile === step ? palette.ink : palette.soft,
      bold: tile === step,
    };
    text(String(tile + 1), x((tile + 0.5) * TILE), sumBottom + 14, style);
  }
  text(t`tile`, 0, sumBottom + 14);

  const stairs = Array.from({ length: step + 1 }, (_, tile): [number, number][] => [
    [x(tile * TILE), y(walk.max[tile] as number)],
    [x((tile + 1) * TILE), y(walk.max[tile] as number)],
  ]).flat();
  line(stairs, palette.roleText.output, 2.5);
  const [endX, endY] = stairs.at(-1) as [number, number];
  const label = t`running max m`;
  const room = textWidth(label, SIZE, true);
  // Above the end of the line, where nothing has been drawn: a staircase only rises. Where that is too narrow it
  // reaches into the hatching; never over the numbers of the axis.
  const labelX = Math.max(LEFT + 4, endX - 4 - room);
  const halo = { colour: palette.background, line: 5 };
  text(label, labelX, endY - 10, { fill: palette.roleText.output, bold: true, halo });
  for (let tile = 0; tile <= step; tile++) {
    const sum = walk.sum[tile] as number;
    const before = tile > 0 ? (walk.sum[tile - 1] as number) * (walk.rescale[tile] as number) : 0;
    const box = { x: x(tile * TILE) + 3, width: inner / TILES - 6 };
    const kept = sumBottom - sumY(before);
    shapes.push({ kind: "rect", fill: palette.hatch, y: sumY(before), height: kept, ...box });
    const fill = palette.ramps.output.at(-1) as string;
    shapes.push({ kind: "rect", fill, y: sumY(sum), height: sumY(before) - sumY(sum), ...box });
  }
  line(
    [
      [LEFT, sumBottom],
      [width - RIGHT, sumBottom],
    ],
    palette.hatch,
    1,
  );
  return {
    width,
    height: TILES_HEIGHT,
    background: palette.background,
    hatch: palette.hatch,
    shapes,
  };
}
