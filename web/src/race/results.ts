// What a race says: lines of a plot, rows of a table, files, and whether its numbers can be trusted.

import type { Rows } from "../lib/file.js";
import { fixed, grouped, milliseconds, powerOfTen, scientific } from "../lib/format.js";
import { decimal, t } from "../lib/messages.js";
import { MARKS, type Plot, powers, type Series } from "../lib/plot.js";
import { EXACT } from "./request.js";
import type { RaceRow } from "./run.js";

export type Measure = "time" | "memory" | "distance";

export const MEASURES: readonly { measure: Measure; title: string; axis: string }[] = [
  { measure: "time", title: t`Time`, axis: t`time of a call` },
  { measure: "memory", title: t`Memory`, axis: t`WebAssembly memory` },
  { measure: "distance", title: t`Distance`, axis: t`distance from exact attention` },
];

/** The middle 80 % of samples may spread over this part of the median. */
export const NOISY_SPREAD = 0.25;

export const spreadOf = ({ ms }: RaceRow): number => (ms ? (ms.p90 - ms.p10) / ms.median : 0);
export const isNoisy = (row: RaceRow): boolean => spreadOf(row) > NOISY_SPREAD;

export function measured(row: RaceRow, measure: Measure): number | undefined {
  if (measure === "time") return row.ms?.median;
  return measure === "memory" ? row.heapBytes : row.distance;
}

const bytes = (count: number): string =>
  count < 2 ** 20
    ? `${(count / 1024).toFixed(0)} KiB`
    : `${decimal((count / 2 ** 20).toFixed(1))}\u00a0MiB`;

export function valueText(value: number | undefined, measure: Measure): string {
  if (value === undefined) return t`not measured`;
  if (measure === "time") return milliseconds(value);
  if (measure === "memory") return bytes(value);
  return value < 0.01 ? scientific(value) : fixed(value);
}

const AXIS_TEXT: Readonly<Record<Measure, (value: number) => string>> = {
  time: (ms) =>
    ms >= 1000 ? `${decimal(ms / 1000)}\u00a0s` : ms >= 1 ? t`${ms} ms` : `${ms * 1000}\u00a0µs`,
  memory: (count) => t`${Math.round(count / 2 ** 20)} MiB`,
  distance: (value) => (value >= 0.01 ? decimal(value) : powerOfTen(value)),
};

/** Powers of a base around values; at least two. */
function ticksAround(values: readonly number[], base: number): number[] {
  const low = Math.min(...values);
  const all = powers(low, Math.max(...values), base);
  const ticks = all.length > 1 ? all : [...all, (all[0] ?? 1) * base];
  const every = Math.ceil(ticks.length / 9);
  return ticks.filter((_, index) => index % every === 0 || index === ticks.length - 1);
}

/** On a phone a longer name in one line would leave no room for its curve. */
const LABEL_LETTERS = 18;

const TONES = { exact: "ink", chosen: "output", other: "soft" } as const;

/** One line a contestant, with a mark of its own; exact attention in ink, the chosen one in colour, peers dashed. */
function seriesOf(rows: readonly RaceRow[], measure: Measure, chosen: string | null): Series[] {
  const ids = [...new Set(rows.map(({ contestant }) => contestant))];
  return ids.flatMap((id, place) => {
    const own = rows.filter(({ contestant }) => contestant === id);
    const points = own.flatMap((row): [number, number][] => {
      const value = measured(row, measure);
      return value !== undefined && value > 0 && Number.isFinite(value)
        ? [[row.length, value]]
        : [];
    });
    if (points.length === 0) return [];
    const tone = id === chosen ? TONES.chosen : id === EXACT ? TONES.exact : TONES.other;
    const name = own[0]?.title ?? id;
    const label = id === EXACT ? t`exact attention` : name;
    const mark = MARKS[place % MARKS.length] ?? "dot";
    return [{ name, label, points, tone, mark, dots: true, dash: own[0]?.kind === "peer" }];
  });
}

/** Null before the first number. */
export function racePlot(
  rows: readonly RaceRow[],
  measure: Measure,
  chosen: string | null,
  at: number | null,
): Plot | null {
  const series = seriesOf(rows, measure, chosen);
  const values = series.flatMap(({ points }) => points.map(([, value]) => value));
  if (values.length === 0) return null;
  const lengths = [...new Set(rows.map(({ length }) => length))].sort((a, b) => a - b);
  const [first = 1, last = 1] = [lengths[0], lengths.at(-1)];
  const ticks = ticksAround(values, measure === "memory" ? 2 : 10);
  const axis = MEASURES.find((row) => row.measure === measure)?.axis ?? "";
  return {
    x: {
      name: t`tokens`,
      log: true,
      min: first,
      max: last > first ? last : 2 * first,
      ticks: lengths,
      text: grouped,
    },
    y: {
      name: axis,
      log: true,
      min: ticks[0] ?? 1,
      max: ticks.at(-1) ?? 10,
      ticks,
      text: AXIS_TEXT[measure],
    },
    series,
    at,
    leaders: true,
    letters: LABEL_LETTERS,
  };
}

const COLUMNS = [
  t`contestant`,
  t`tokens`,
  t`median ms`,
  "p10 ms",
  "p90 ms",
  t`runs`,
  t`distance`,
  t`memory bytes`,
  t`scratch bytes`,
  t`sees`,
  t`note`,
];

const SEEN: Readonly<Record<RaceRow["sees"], string>> = {
  all: t`all`,
  past: t`the past`,
};

function noteOf(row: RaceRow): string {
  if (row.status === "skipped") return t`skipped: ${row.reason ?? ""}`;
  if (row.status === "failed") return t`failed: ${row.reason ?? ""}`;
  return isNoisy(row) ? t`noisy` : "";
}

/** Every number as it was measured, for the table and the CSV file. */
export function raceTable(rows: readonly RaceRow[]): Rows {
  const short = (value: number | undefined) =>
    value === undefined ? "" : Number(value.toPrecision(4));
  return {
    columns: COLUMNS,
    rows: rows.map((row) => [
      row.title,
      row.length,
      short(row.ms?.median),
      short(row.ms?.p10),
      short(row.ms?.p90),
      row.samples?.length ?? "",
      short(row.distance),
      row.heapBytes ?? "",
      row.scratchBytes ?? "",
      SEEN[row.sees],
      noteOf(row),
    ]),
  };
}

/** Whether the numbers can be trusted, in a sentence. */
export function noiseSentence(rows: readonly RaceRow[], wasHidden: boolean): string {
  const timed = rows.filter(({ status }) => status === "timed");
  const noisy = timed.filter(isNoisy);
  const hidden = wasHidden
    ? t`The page was in the background for a while, where browsers slow it down: run it again. `
    : "";
  const percent = Math.round(100 * NOISY_SPREAD);
  if (noisy.length === 0)
    return t`${hidden}Quiet: in all ${timed.length} measurements the middle 80 % of the samples spread over at most ${percent} % of the median.`;
  return t`${hidden}Noisy: in ${noisy.length} of ${timed.length} measurements the middle 80 % of the samples spread over more than ${percent} % of the median. Close what else runs, plug in, and run it again.`;
}
