// One query over its keys: why keys are read, and the weights that they get beside those of exact attention.
import type { Palette } from "../../lib/palette.js";
import type { Scene, Shape } from "../../lib/scene.js";
import { EM, shortenedTo, textWidth } from "../../lib/text_width.js";
import type { Group } from "./selected.js";
import { PASSAGES, TOKENS } from "./text.js";

export interface Row {
  query: number;
  weights: Float32Array;
  exact: Float32Array;
  groups: readonly Group[] | null;
  words: { score: string; weight: string };
}

const SIZE = 12;
const NAMES = 30;
const TITLE = 22;
const SCORES = 70;
const WEIGHTS = 110;
const AXIS = 24;
const EVERY = 8;

export const rowHeight = (hasScores: boolean): number =>
  NAMES + (hasScores ? TITLE + SCORES + 10 : 0) + TITLE + WEIGHTS + AXIS;

interface Band {
  palette: Palette;
  px: (token: number) => number;
  top: number;
}

const text = (palette: Palette, x: number, y: number, words: string): Shape => ({
  kind: "text",
  x,
  y,
  text: words,
  size: SIZE,
  fill: palette.soft,
  anchor: "start",
});

function passageShapes({ palette, px }: Band): Shape[] {
  let from = 0;
  return PASSAGES.flatMap(({ name, length }): Shape[] => {
    const [left, right] = [px(from) + 1, px(from + length) - 2];
    from += length;
    const points = [[left, 18] as const, [right, 18] as const];
    const words = right - left < 2 * SIZE * EM ? "" : shortenedTo(name, right - left, SIZE);
    return [
      text(palette, left, 8, words),
      { kind: "path", points, stroke: palette.hatch, line: 1 },
    ];
  });
}

/** A bar a group: filled where it is read, else its outline. */
function scoreShapes(row: Row, groups: readonly Group[], { palette, px, top }: Band): Shape[] {
  const all = groups.flatMap(({ score, actual }) => [score, actual ?? score]);
  const [low, high] = [Math.min(0, ...all), Math.max(0, ...all, 1e-9)];
  const y = (score: number) => top + ((high - score) / (high - low)) * SCORES;
  const shapes: Shape[] = [
    {
      kind: "path",
      points: [
        [px(0), y(0)],
        [px(TOKENS), y(0)],
      ],
      stroke: palette.hatch,
      line: 1,
    },
  ];
  for (const { from, to, score, actual } of groups) {
    const keys = Array.from({ length: to - from }, (_, at) => from + at);
    const isRead = keys.some((key) => row.weights[key] !== 0);
    const box = {
      x: px(from) + 0.5,
      y: Math.min(y(score), y(0)),
      width: Math.max(1, px(to) - px(from) - 1.5),
      height: Math.max(1, Math.abs(y(score) - y(0))),
    };
    shapes.push(
      isRead
        ? { kind: "rect", ...box, fill: palette.roleText.key }
        : { kind: "frame", ...box, stroke: palette.hatch, line: 1 },
    );
    if (actual === undefined) continue;
    const points = [[px(from), y(actual)] as const, [px(to) - 1, y(actual)] as const];
    shapes.push({ kind: "path", points, stroke: palette.ink, line: 2 });
  }
  return shapes;
}

/** Filled: here; ticks: exact attention. */
function weightShapes(row: Row, { palette, px, top }: Band): Shape[] {
  const most = Math.max(...row.weights, ...row.exact);
  const y = (weight: number) => top + (1 - weight / most) * WEIGHTS;
  const shapes: Shape[] = [
    {
      kind: "path",
      points: [
        [px(0), y(0)],
        [px(TOKENS), y(0)],
      ],
      stroke: palette.hatch,
      line: 1,
    },
  ];
  for (let key = 0; key <= row.query; key++) {
    const [left, width] = [px(key), Math.max(1, px(key + 1) - px(key) - 1)];
    const [own, exact] = [row.weights[key] as number, row.exact[key] as number];
    if (own === 0) {
      shapes.push({ kind: "hatch", x: left, y: top, width: px(key + 1) - left, height: WEIGHTS });
    } else {
      const fill = palette.roleText.key;
      shapes.push({ kind: "rect", x: left, y: y(own), width, height: y(0) - y(own), fill });
    }
    const points = [[left, y(exact)] as const, [left + width, y(exact)] as const];
    shapes.push({ kind: "path", points, stroke: palette.ink, line: 2 });
  }
  return shapes;
}

function axisShapes(row: Row, { palette, px, top }: Band): Shape[] {
  const middle = (key: number) => (px(key) + px(key + 1)) / 2;
  const number = (key: number, isQuery: boolean): Shape => ({
    kind: "text",
    x: Math.min(middle(key), px(TOKENS) - textWidth(String(key + 1), SIZE, isQuery) / 2),
    y: top + 14,
    text: String(key + 1),
    size: SIZE,
    fill: isQuery ? palette.roleText.query : palette.soft,
    anchor: "middle",
    bold: isQuery,
  });
  const ticks = Array.from({ length: TOKENS / EVERY }, (_, n) => (n + 1) * EVERY - 1);
  const far = ticks.filter((key) => Math.abs(key - row.query) > 3);
  return [...far.map((key) => number(key, false)), number(row.query, true)];
}

export function rowScene(row: Row, palette: Palette, width: number): Scene {
  const px = (token: number) => (token / TOKENS) * width;
  let top = NAMES;
  const shapes = passageShapes({ palette, px, top });
  const { groups, words } = row;
  if (groups) {
    shapes.push(text(palette, 0, top + 8, shortenedTo(words.score, width, SIZE)));
    shapes.push(...scoreShapes(row, groups, { palette, px, top: top + TITLE }));
    top += TITLE + SCORES + 10;
  }
  shapes.push(text(palette, 0, top + 8, shortenedTo(words.weight, width, SIZE)));
  shapes.push(...weightShapes(row, { palette, px, top: top + TITLE }));
  shapes.push(...axisShapes(row, { palette, px, top: top + TITLE + WEIGHTS }));
  const { background, hatch } = palette;
  return { width, height: rowHeight(groups !== null), background, hatch, shapes };
}
