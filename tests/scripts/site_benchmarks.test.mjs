// What the page of benchmarks is given of a report: what ran on a GPU carries its name and its own peaks.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { readBenchmarks } from "../../web/vite/benchmarks.mjs";
import { gpuReport } from "./gpu_report.mjs";

const report = (more) => ({
  schema: "heed-bench",
  date: "2026-11-23T00:00:00Z",
  command: "build/heed-bench",
  build: { compiler: "GNU", commit: "0123456789ab" },
  plan: { clock: "wall" },
  machine: { cpu_model: "a processor", simd: { chosen: "AVX2" } },
  probes: { fma: [{ target: "AVX2", threads: 1, gflops: 50 }] },
  rows: [
    {
      mechanism: "scaled_dot_product",
      peer: "heed",
      dtype: "bfloat16",
      threads: 1,
      status: "timed",
      shape: { q_len: 1, kv_len: 512, head_dim: 64, mask: "full" },
      ms: { median: 1, p10: 0.9, p90: 1.1 },
    },
  ],
  ...more,
});

function read(...reports) {
  const folder = mkdtempSync(join(tmpdir(), "heed-results-"));
  try {
    for (const [n, each] of reports.entries()) {
      writeFileSync(join(folder, `${n}.json`), JSON.stringify(each));
    }
    return readBenchmarks(`${folder}/`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("ARunOnTheCpuHasThePeaksOfItsTarget", () => {
  const fma = [
    { target: "AVX2", threads: 1, gflops: 50 },
    { target: "SSE4", threads: 1, gflops: 25 },
  ];
  const [run] = read(report({ probes: { fma } })).runs;
  assert.equal(run.gpu, undefined);
  assert.deepEqual(
    run.peaks.map(({ gflops }) => gflops),
    [50],
  );
});

test("ARunOnAGpuCarriesItsNameAndThePeaksOfEveryType", () => {
  const gpu = { name: "NVIDIA H100" };
  const machine = { ...report().machine, gpu };
  const fma = [
    { target: "fma", threads: 1, gflops: 60_000, dtype: "float32" },
    { target: "wgmma", threads: 1, gflops: 800_000, dtype: "bfloat16" },
  ];
  const [newest, oldest] = read(report(), report({ machine, probes: { fma } })).runs;
  assert.equal(newest.gpu, "NVIDIA H100");
  assert.deepEqual(
    newest.peaks.map(({ dtype, gflops }) => [dtype, gflops]),
    [
      ["float32", 60_000],
      ["bfloat16", 800_000],
    ],
  );
  assert.deepEqual([newest.rows[0].queries, newest.rows[0].length], [1, 512]);
  assert.equal(oldest.gpu, undefined);
});

test("DecodingOnAGpuIsByTypeAndBatchAndCold", () => {
  const { calls, runs } = read(gpuReport());
  assert.deepEqual(
    calls.map(({ kind, gpu }) => [kind, gpu === undefined]),
    [["decode", false]],
  );
  const [{ rows }] = calls;
  assert.deepEqual(
    [...new Set(rows.map(({ group }) => group))],
    ["bfloat16, batch 1", "bfloat16, batch 32"],
  );
  const [first] = gpuReport().rows.filter(({ shape }) => shape.q_len === 1);
  assert.equal(rows[0].ms, Number(first.cold_ms.median.toPrecision(6)));
  // One name a row: many shapes of a mechanism are in one plot.
  const own = runs[0].rows.filter(({ peer }) => peer === "heed");
  assert.equal(new Set(own.map(({ name }) => name)).size, own.length);
});

test("WhatHasNoColdTimeIsNotDecoding", () => {
  const made = gpuReport();
  const rows = made.rows.map(({ cold_ms: _, ...row }) => row);
  assert.deepEqual(read({ ...made, rows }).calls, []);
});

const row = (mechanism, length = 512, threads = 1) => ({
  mechanism,
  status: "timed",
  mask: "full",
  kv_len: length,
  head_dim: 64,
  num_heads: 8,
  threads,
  gflops: 50,
  ms: { median: 2 },
  forward_ms: { median: 1 },
});
const gradients = (...rows) => report({ schema: "heed-bench-backward", rows });

test("GradientsOfManyMechanismsAreAPlotOfTheirOwn", () => {
  const { calls, gradients: many } = read(
    gradients(row("scaled_dot_product"), row("scaled_dot_product", 1024)),
    gradients(row("scaled_dot_product"), row("linear")),
    gradients(row("scaled_dot_product"), row("scaled_dot_product")), // one length: neither
  );
  assert.deepEqual(
    calls.map(({ file, kind, rows }) => [file, kind, rows.length]),
    [["0.json", "backward", 2]],
  );
  assert.deepEqual(
    many.map(({ file, length, rows }) => [file, length, rows.map(({ mechanism }) => mechanism)]),
    [["1.json", 512, ["scaled_dot_product", "linear"]]],
  );
  assert.deepEqual([many[0].rows[1].ms, many[0].rows[1].forward], [2, 1]);
  assert.equal(many[0].threads, 1);
});

test("GradientsOfManyMechanismsAreOfOneShape", () => {
  const [exact, linear] = ["scaled_dot_product", "linear"];
  for (const other of [row(linear, 1024), row(linear, 512, 2)]) {
    assert.throws(() => read(gradients(row(exact), other)), /^Error: 0\.json: .* one shape/);
  }
  const [two] = read(gradients(row(exact, 512, 2), row(linear, 512, 2))).gradients;
  assert.equal(two.threads, 2);
});
