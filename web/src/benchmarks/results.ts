// What the committed results hold, as the build hands it over, and the plots of it.

import { fixed, grouped, powerOfTen } from "../lib/format.js";
import { decimal, t } from "../lib/messages.js";
import { MARKS, type Plot, powers, type Series, shortCount } from "../lib/plot.js";
import type { CallRun } from "./calls.js";
import type { GradientRun } from "./gradients.js";

export interface Context {
  file: string;
  date: string;
  commit: string;
  compiler: string;
  cpu: string;
  /** Absent: the run was on the CPU. */
  gpu?: string;
  simd: string;
  clock: string;
  command: string;
  /** Multiply-adds that the same run reached, by thread count; with a type, of that type. */
  peaks: readonly { threads: number; gflops: number; dtype?: string }[];
  /** What it read from memory. */
  reads: readonly { threads: number; gbps: number }[];
}

export interface Row {
  /** What tells it from other shapes of its mechanism; absent on the CPU. */
  name?: string;
  mechanism: string;
  peer: string;
  dtype: string;
  headDim: number;
  queries: number;
  length: number;
  mask: string;
  threads: number;
  /** Milliseconds of a call: median, and the tenths below and above it. */
  ms: number;
  low: number;
  high: number;
  /** Absent where the work has not been counted. */
  gflops?: number;
  flop?: number;
  bytes?: number;
  error: number;
  bound: number;
}

export interface Run extends Context {
  rows: readonly Row[];
}

export interface Curves extends Context {
  curves: readonly {
    mechanism: string;
    mask: string;
    points: readonly (readonly [number, number])[];
  }[];
}

export interface Benchmarks {
  runs: readonly Run[];
  curves: readonly Curves[];
  calls: readonly CallRun[];
  gradients: readonly GradientRun[];
}

export const distinct = <T>(values: readonly T[]): T[] => [...new Set(values)];

const machineOf = ({ cpu, gpu, simd }: Context): string => gpu ?? `${cpu}, ${simd}`;

/** "2026-11-22 · AMD EPYC …, AVX3_ZEN4": how a run is chosen. */
export const contextTitle = (run: Context): string => `${run.date} · ${machineOf(run)}`;

export const clockWords = ({ clock }: Context): string =>
  clock === "cpu"
    ? t`processor time`
    : clock === "wall"
      ? t`wall time`
      : t`time of events on the GPU`;

export const contextSentence = (run: Context) => {
  const { compiler, commit, date, file } = run;
  return `${machineOf(run)}; ${compiler}, commit ${commit}, ${date}; ${clockWords(run)}; native_bench/results/${file}.`;
};

/** The most that was reached; undefined where it was not measured. */
export function peakOf({ peaks }: Context, threads: number, dtype?: string): number | undefined {
  const fits = peaks.filter(
    (row) => row.threads === threads && (row.dtype ?? dtype) === (dtype ?? row.dtype),
  );
  return fits.length > 0 ? Math.max(...fits.map(({ gflops }) => gflops)) : undefined;
}

export const readRateOf = ({ reads }: Context, threads: number): number | undefined =>
  reads.find((row) => row.threads === threads)?.gbps;

/** Exact attention, as many queries as keys: a run on a GPU has decoding and recurrences too. */
export const isPrompt = ({ mechanism, queries, length }: Row): boolean =>
  mechanism === "scaled_dot_product" && queries === length;

/** Runs of one mechanism at several lengths beside peers, and runs of many mechanisms. */
export const countPeers = ({ rows }: Run): number =>
  distinct(rows.filter(isPrompt).map(({ peer }) => peer)).length;
export const comesWithPeers = (run: Run): boolean => countPeers(run) > 1;
export const countMechanisms = ({ rows }: Run): number =>
  distinct(rows.map(({ mechanism }) => mechanism)).length;
export const hasManyMechanisms = (run: Run): boolean => countMechanisms(run) > 1;

const isOwn = ({ peer }: Row): boolean => peer.startsWith("heed");

/** The types that a roofline is drawn of: each has peaks of its own on a GPU. */
export const rooflineTypes = ({ gpu, rows }: Run): string[] =>
  gpu === undefined ? [] : distinct(rows.filter(isOwn).map(({ dtype }) => dtype));

/** What a roofline shows of a run: on a GPU all calls of one type, else the smallest heads, on one thread. */
export function rooflineRun(run: Run, dtype: string | undefined): Run {
  if (run.gpu !== undefined) {
    const rows = run.rows.filter((row) => isOwn(row) && row.dtype === dtype);
    return { ...run, rows, peaks: run.peaks.filter((peak) => (peak.dtype ?? dtype) === dtype) };
  }
  const size = Math.min(...run.rows.map(({ headDim }) => headDim));
  const isShown = ({ headDim, threads }: Row) => headDim === size && threads === 1;
  return { ...run, rows: run.rows.filter(isShown) };
}

const number = (value: number): string => decimal(String(Number(value.toPrecision(3))));

const TERA = 1000;

/** The axis of a plot whose largest speed is `most`, all in GFLOP/s. */
export const speedAxis = (most: number): { name: string; text: (gflops: number) => string } =>
  most >= TERA
    ? { name: "TFLOP/s", text: (gflops) => number(gflops / TERA) }
    : { name: "GFLOP/s", text: number };

export const speedText = (gflops: number): string =>
  gflops >= TERA ? `${fixed(gflops / TERA, 1)}\u00a0TFLOP/s` : `${fixed(gflops, 1)}\u00a0GFLOP/s`;

const lengthAxis = (lengths: readonly number[]) => ({
  name: t`tokens`,
  log: true,
  min: Math.min(...lengths),
  max: Math.max(...lengths),
  ticks: lengths,
  text: grouped,
});

/** GFLOP/s of each program against length, and what the machine can reach. */
export function speedPlot(rows: readonly Row[], peak: number | undefined, at: number | null): Plot {
  const lengths = distinct(rows.map(({ length }) => length)).sort((a, b) => a - b);
  const series = distinct(rows.map(({ peer }) => peer)).map((peer, place): Series => {
    const own = rows.filter((row) => row.peer === peer);
    const points = own.map((row) => [row.length, row.gflops ?? Number.NaN] as const);
    const [tone, mark] = [peer === "heed" ? "ink" : "soft", MARKS[place % MARKS.length]] as const;
    return { name: peer, points, tone, dots: true, ...(mark && { mark }) };
  });
  if (peak !== undefined) {
    const points = lengths.map((length) => [length, peak] as const);
    series.push({ name: t`measured peak`, points, tone: "soft", dash: true });
  }
  const most = Math.max(peak ?? 0, ...rows.map(({ gflops }) => gflops ?? 0));
  const step =
    10 ** Math.floor(Math.log10(most)) / (most / 10 ** Math.floor(Math.log10(most)) < 3 ? 2 : 1);
  const ticks = Array.from({ length: Math.ceil(most / step) + 1 }, (_, n) => n * step);
  return {
    x: lengthAxis(lengths),
    y: { log: false, min: 0, max: ticks.at(-1) ?? most, ticks, ...speedAxis(most) },
    series,
    at,
    leaders: true,
  };
}

/** Every curve in grey, exact attention in ink, the chosen one in colour. */
export function curvesPlot({ curves }: Curves, chosen: string, at: number | null): Plot {
  const all = curves.flatMap(({ points }) => points);
  const times = powers(Math.min(...all.map(([, ms]) => ms)), Math.max(...all.map(([, ms]) => ms)));
  const named = ["scaled_dot_product", chosen];
  const rank = (id: string) => named.indexOf(id);
  const series = [...curves]
    .sort((a, b) => rank(a.mechanism) - rank(b.mechanism))
    .map(({ mechanism, points }): Series => {
      const place = rank(mechanism);
      const tone = mechanism === chosen ? "output" : place === 0 ? "ink" : "faint";
      return {
        name: mechanism,
        points,
        tone,
        label: place < 0 ? "" : place === 0 ? t`exact` : mechanism,
      };
    });
  return {
    x: lengthAxis(distinct(all.map(([length]) => length)).sort((a, b) => a - b)),
    y: {
      name: t`time of a call`,
      log: true,
      min: times[0] ?? 1,
      max: times.at(-1) ?? 10,
      ticks: times,
      text: (ms) =>
        ms >= 1000
          ? `${decimal(ms / 1000)}\u00a0s`
          : ms >= 1
            ? `${ms}\u00a0ms`
            : `${number(ms * 1000)}\u00a0µs`,
    },
    series,
    at,
  };
}

interface Counted extends Row {
  gflops: number;
  flop: number;
  bytes: number;
}

export const counted = (rows: readonly Row[]): Counted[] =>
  rows.filter((row): row is Counted =>
    [row.gflops, row.flop, row.bytes].every((value) => value !== undefined && value > 0),
  );

/** A point as a series of its own, so that it can be pointed at by name. */
const point = (name: string, x: number, y: number, chosen: string): Series => ({
  name,
  points: [[x, y]],
  tone: name === chosen ? "output" : "soft",
  dots: true,
  label: "",
  radius: name === chosen ? 5 : 3,
});

/** The chosen one is drawn last, above its neighbours. */
const chosenLast = (points: readonly Series[], chosen: string): Series[] =>
  [...points].sort((a, b) => Number(a.name === chosen) - Number(b.name === chosen));

/** Of heed's two kernels for a GPU the second says which it is. */
export const rowName = ({ name, peer, mechanism, mask }: Row): string =>
  name === undefined ? `${mechanism}, ${mask}` : peer === "heed" ? name : `${name} (${peer})`;

/** Speed against operations a byte, under what memory and multiply-adds allow. */
export function rooflinePlot(run: Run, chosen: string): Plot {
  const rows = counted(run.rows);
  const [peak = Number.NaN, rate = Number.NaN] = [peakOf(run, 1), readRateOf(run, 1)];
  const intensity = rows.map(({ flop, bytes }) => flop / bytes);
  const xs = powers(Math.min(...intensity, peak / rate), Math.max(...intensity, peak / rate));
  const [low, high] = [xs[0] ?? 1, xs.at(-1) ?? 10];
  const ys = powers(Math.min(...rows.map(({ gflops }) => gflops)), peak);
  const floor = ys[0] ?? 1;
  const roof: Series = {
    name: t`measured ceiling`,
    points: [
      [Math.max(low, floor / rate), rate * Math.max(low, floor / rate)],
      [peak / rate, peak],
      [high, peak],
    ],
    tone: "ink",
    label: "",
  };
  const points = rows.map((row) => point(rowName(row), row.flop / row.bytes, row.gflops, chosen));
  return {
    x: { name: t`operations a byte`, log: true, min: low, max: high, ticks: xs, text: shortCount },
    y: {
      log: true,
      min: floor,
      max: ys.at(-1) ?? peak,
      ticks: ys,
      ...speedAxis(peak),
    },
    series: [roof, ...chosenLast(points, chosen)],
  };
}

/** Largest error against the bound that the mechanism declares: the line is where they are equal. */
export function errorPlot({ rows }: Run, chosen: string): Plot {
  const measured = rows.filter(({ error }) => error > 0);
  const all = measured.flatMap(({ error, bound }) => [error, bound]);
  const ticks = powers(Math.min(...all), Math.max(...all));
  const [low, high] = [ticks[0] ?? 1e-9, ticks.at(-1) ?? 1];
  const axis = { log: true, min: low, max: high, ticks, text: powerOfTen };
  const diagonal: Series = {
    name: t`bound`,
    points: [
      [low, low],
      [high, high],
    ],
    tone: "ink",
    label: "",
  };
  const points = measured.map((row) => point(rowName(row), row.bound, row.error, chosen));
  return {
    x: { name: t`declared bound`, ...axis },
    y: { name: t`largest error`, ...axis },
    series: [diagonal, ...chosenLast(points, chosen)],
  };
}
