// Bars in groups, with their numbers on them.
import type { Palette } from "./palette.js";
import type { Scene, Shape } from "./scene.js";

export interface Bars {
  /** What a bar's length means. */
  name: string;
  groups: readonly {
    label: string;
    bars: readonly { name: string; value: number; text: string }[];
  }[];
}

const BAR = 16;
const GAP = 3;
const BETWEEN = 14;
const TOP = 28;
const LEFT = 64;
const SIZE = 12;
/** Room for a number and a name behind a bar. */
const RIGHT = 168;

const heightOf = (count: number) => count * (BAR + GAP) + BETWEEN;

export const barsHeight = ({ groups }: Bars): number =>
  TOP + groups.reduce((sum, { bars }) => sum + heightOf(bars.length), 0);

/** The first bar of a group in ink, those after it in grey. */
export function barsScene(bars: Bars, palette: Palette, width: number): Scene {
  const { groups, name } = bars;
  const most = Math.max(...groups.flatMap((group) => group.bars.map(({ value }) => value)));
  const scale = Math.max(0, width - LEFT - RIGHT) / most;
  const text = { kind: "text", size: SIZE, fill: palette.soft } as const;
  const shapes: Shape[] = [{ ...text, x: LEFT, y: 10, text: name, anchor: "start" }];
  let y = TOP;
  for (const group of groups) {
    const middle = y + (group.bars.length * (BAR + GAP)) / 2;
    shapes.push({ ...text, x: LEFT - 12, y: middle, text: group.label, anchor: "end" });
    for (const [index, bar] of group.bars.entries()) {
      const long = bar.value * scale;
      const fill = index === 0 ? palette.ink : palette.hatch;
      shapes.push({ kind: "rect", x: LEFT, y, width: long, height: BAR, fill });
      const label = `${bar.text}  ${bar.name}`;
      shapes.push({ ...text, x: LEFT + long + 8, y: y + BAR / 2, text: label, anchor: "start" });
      y += BAR + GAP;
    }
    y += BETWEEN;
  }
  const { background, hatch } = palette;
  return { width, height: barsHeight(bars), background, hatch, shapes };
}
