// Bars in groups, with their numbers on them.
import type { Palette } from "./palette.js";
import type { Scene, Shape } from "./scene.js";
import { roomFor } from "./text_width.js";

interface Bar {
  name: string;
  value: number;
  text: string;
}

export interface Bars {
  /** What a bar's length means. */
  name: string;
  groups: readonly { label: string; bars: readonly Bar[] }[];
}

const BAR = 16;
const GAP = 3;
const BETWEEN = 14;
const TOP = 28;
const SIZE = 12;
/** Between a group's label and its bars, and between a bar and what stands behind it. */
const [LABEL_GAP, BAR_GAP] = [12, 8];

const heightOf = (count: number) => count * (BAR + GAP) + BETWEEN;

export const barsHeight = ({ groups }: Bars): number =>
  TOP + groups.reduce((sum, { bars }) => sum + heightOf(bars.length), 0);

const labelsOf = ({ groups }: Bars): string[] => groups.map(({ label }) => label);

const wordsBehind = ({ text, name }: Bar): string => `${text}  ${name}`;

/** Bars as long as they can be with the words behind each of them. */
function scaleOf({ groups }: Bars, room: number): number {
  const all = groups.flatMap((group) => group.bars).filter(({ value }) => value > 0);
  const fits = all.map((bar) => {
    const words = BAR_GAP + roomFor([wordsBehind(bar)], SIZE);
    return Math.max(0, room - words) / bar.value;
  });
  return fits.length > 0 ? Math.min(...fits) : 0;
}

/** The first bar of a group in ink, those after it in grey. */
export function barsScene(bars: Bars, palette: Palette, width: number): Scene {
  const { groups, name } = bars;
  const left = LABEL_GAP + roomFor(labelsOf(bars), SIZE);
  const scale = scaleOf(bars, width - left);
  const text = { kind: "text", size: SIZE, fill: palette.soft } as const;
  const shapes: Shape[] = [{ ...text, x: left, y: 10, text: name, anchor: "start" }];
  let y = TOP;
  for (const group of groups) {
    const middle = y + (group.bars.length * (BAR + GAP)) / 2;
    shapes.push({ ...text, x: left - LABEL_GAP, y: middle, text: group.label, anchor: "end" });
    for (const [index, bar] of group.bars.entries()) {
      const long = bar.value * scale;
      const fill = index === 0 ? palette.ink : palette.hatch;
      shapes.push({ kind: "rect", x: left, y, width: long, height: BAR, fill });
      const at = { x: left + long + BAR_GAP, y: y + BAR / 2 };
      shapes.push({ ...text, ...at, text: wordsBehind(bar), anchor: "start" });
      y += BAR + GAP;
    }
    y += BETWEEN;
  }
  const { background, hatch } = palette;
  return { width, height: barsHeight(bars), background, hatch, shapes };
}
