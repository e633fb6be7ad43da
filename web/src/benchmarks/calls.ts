// Calls that the other plots do not hold: decoding, gradients, keep patterns and steps of recurrent
// mechanisms, as plots of their committed runs.
import { grouped } from "../lib/format.js";
import { decimal, t } from "../lib/messages.js";
import { MARKS, type Plot, powers, type Series } from "../lib/plot.js";
import { type Context, distinct, peakOf, readRateOf, speedAxis } from "./results.js";

export type Kind = "decode" | "backward" | "patterns" | "steps";

export interface CallRow {
  /** Rows of one group are in one plot. */
  group: string;
  /** The line, or the bar, that the row belongs to. */
  name: string;
  /** Keys, or the share of pairs that exist; 0 for steps. */
  x: number;
  /** GB/s, GFLOP/s, the share of the time of the dense call, or microseconds. */
  y: number;
  /** Milliseconds of a call, median. */
  ms: number;
  /** Milliseconds of the forward call, for gradients. */
  forward?: number;
}

export interface CallRun extends Context {
  kind: Kind;
  rows: readonly CallRow[];
}

interface Words {
  title: string;
  figure: string;
  intro: string;
  x: string;
  y: string;
}

export const WORDS: Readonly<Record<Kind, Words>> = {
  decode: {
    title: t`Decoding: one query, a long cache`,
    figure: t`How fast the cache is read`,
    intro: t`One new token meets all keys of the cache, and each is used once: what counts is how fast memory brings them. 32 query heads share 8 key-value heads of 128 dimensions. Smaller numbers in the cache are fewer bytes; the dashed line is what the same run read from memory.`,
    x: t`keys`,
    y: t`GB/s`,
  },
  backward: {
    title: t`Gradients of q, k and v`,
    figure: t`Speed of the backward pass`,
    intro: t`The backward pass computes every weight a second time instead of keeping it: two and a half times the products of the forward pass. The dashed line is the measured peak of multiply-adds.`,
    x: t`tokens`,
    y: t`GFLOP/s`,
  },
  patterns: {
    title: t`Pairs that do not exist`,
    figure: t`Time against what exists`,
    intro: t`Blocks of keys drawn at random, as a share of all pairs, and the time as a share of the dense call. On the dashed line a call would cost exactly its share.`,
    x: t`% of pairs that exist`,
    y: t`% of the time of all pairs`,
  },
  steps: {
    title: t`One token of a recurrent mechanism`,
    figure: t`Time of a step`,
    intro: t`A step reads its state, changes it and reads out one row, 8 heads at once: the time does not depend on how many tokens came before.`,
    x: "",
    y: t`microseconds`,
  },
};

export const groupsOf = ({ rows }: CallRun): string[] => distinct(rows.map(({ group }) => group));

export function groupWords(group: string): string {
  const [, dtype, batch] = group.match(/^(\w+), batch (\d+)$/) ?? [];
  if (dtype) return batch === "1" ? t`${dtype}, 1 sequence` : t`${dtype}, ${batch} sequences`;
  const [, block, length] = group.match(/^blocks of (\d+) in (\d+)$/) ?? [];
  return block && length
    ? t`blocks of ${block} in ${grouped(Number(length))}`
    : t`${group} dimensions`;
}

export const rowsOf = ({ rows }: CallRun, group: string): CallRow[] =>
  rows.filter((row) => row.group === group);

/** What a line is measured against: a name, and a height at every x. */
function ceilingOf(run: CallRun, xs: readonly number[]): Series | null {
  const line = (name: string, y: (x: number) => number): Series => ({
    name,
    points: xs.map((x) => [x, y(x)] as const),
    tone: "soft",
    dash: true,
  });
  if (run.kind === "patterns") return line(t`its share`, (x) => x);
  const limit = run.kind === "decode" ? readRateOf(run, 1) : peakOf(run, 1);
  const name = run.kind === "decode" ? t`measured read rate` : t`measured peak`;
  return limit === undefined ? null : line(name, () => limit);
}

const number = (value: number): string => decimal(String(Number(value.toPrecision(3))));

function linearTicks(most: number): number[] {
  const power = 10 ** Math.floor(Math.log10(most));
  const step = most / power < 2 ? power / 4 : most / power < 5 ? power / 2 : power;
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, at) => at * step);
}

export function callPlot(run: CallRun, group: string, at: number | null): Plot {
  const rows = rowsOf(run, group);
  const xs = distinct(rows.map(({ x }) => x)).sort((a, b) => a - b);
  const series = distinct(rows.map(({ name }) => name)).map((name, place): Series => {
    const own = rows.filter((row) => row.name === name);
    const points = own.map(({ x, y }) => [x, y] as const);
    const [tone, mark] = [place === 0 ? "ink" : "soft", MARKS[place % MARKS.length]] as const;
    return { name, points, tone, dots: true, ...(mark && { mark }) };
  });
  const ceiling = ceilingOf(run, xs);
  if (ceiling) series.push(ceiling);
  const words = WORDS[run.kind];
  const most = Math.max(...series.flatMap(({ points }) => points.map(([, y]) => y)));
  const [low, high] = [xs[0] ?? 1, xs.at(-1) ?? 10];
  if (run.kind === "patterns") {
    const ticks = powers(low, high);
    const ends = { log: true, min: Math.min(low, ticks[0] ?? low), max: high, ticks, text: number };
    const heights = powers(Math.min(low, ...rows.map(({ y }) => y)), most);
    const tall = {
      min: heights[0] ?? 1,
      max: heights.at(-1) ?? most,
      ticks: heights,
      text: number,
    };
    const [x, y] = [
      { name: words.x, ...ends },
      { name: words.y, log: true, ...tall },
    ];
    return { x, y, series, at };
  }
  const ticks = linearTicks(most);
  const named = run.kind === "backward" ? speedAxis(most) : { name: words.y, text: number };
  return {
    x: { name: words.x, log: true, min: low, max: high, ticks: xs, text: grouped },
    y: { log: false, min: 0, max: ticks.at(-1) ?? most, ticks, ...named },
    series,
    at,
    leaders: true,
  };
}
