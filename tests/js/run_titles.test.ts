// Committed runs are told apart in words, and speeds and times stay short.
import { describe, expect, it } from "vitest";
import { type CallRun, callPlot } from "../../web/src/benchmarks/calls.js";
import {
  type Benchmarks,
  comesWithPeers,
  hasManyMechanisms,
  speedAxis,
  speedText,
} from "../../web/src/benchmarks/results.js";
import { runTitles } from "../../web/src/benchmarks/runs.js";
import { grouped, milliseconds } from "../../web/src/lib/format.js";
import { readBenchmarks } from "../../web/vite/benchmarks.mjs";

const { runs, curves, calls, gradients } = readBenchmarks() as unknown as Benchmarks;
const kinds = [...new Set(calls.map(({ kind }) => kind))];
const LISTS = {
  all: [
    ...new Map([...runs, ...curves, ...calls, ...gradients].map((run) => [run.file, run])).values(),
  ],
  peers: runs.filter(comesWithPeers),
  mechanisms: runs.filter(hasManyMechanisms),
  growth: curves,
  gradients,
  ...Object.fromEntries(kinds.map((kind) => [kind, calls.filter((run) => run.kind === kind)])),
};

describe.each(Object.entries(LISTS))("runs of %s", (_, list) => {
  it("have names of their own, in words", () => {
    const titles = runTitles(list);
    expect(new Set(titles).size).toBe(list.length);
    for (const title of titles) expect(title).not.toMatch(/_[0-9a-f]{6,}|cpu-time|\.json/);
  });
});

it("runs that nothing but their file tells apart are called by it", () => {
  const one = runs[0];
  if (!one) throw new Error("no run");
  const other = { ...one, file: one.file.replace(/\.json$/, "-2.json") };
  expect(new Set(runTitles([one, other])).size).toBe(2);
});

it("speeds from 1000 GFLOP/s on are in TFLOP/s, on axes and in words", () => {
  expect([speedText(999.94), speedText(484_838)]).toEqual([
    "999.9\u00a0GFLOP/s",
    "484.8\u00a0TFLOP/s",
  ]);
  const tall = speedAxis(1_000_000);
  expect([tall.name, tall.text(900_000), tall.text(1_000_000)]).toEqual(["TFLOP/s", "900", "1000"]);
  expect(speedAxis(180).name).toBe("GFLOP/s");
});

it("a time has the unit of its axis", () => {
  expect([1642.99, 999.99, 12.5, 0.05].map(milliseconds)).toEqual([
    "1.64\u00a0s",
    "999.99\u00a0ms",
    "12.50\u00a0ms",
    "50\u00a0µs",
  ]);
});

it("lengths are written in one way", () => {
  for (const run of calls as readonly CallRun[]) {
    const { x } = callPlot(run, run.rows[0]?.group ?? "", null);
    if (run.kind !== "patterns" && run.kind !== "steps")
      expect(x.text(16_384)).toBe(grouped(16_384));
  }
});
