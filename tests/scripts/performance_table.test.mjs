// What docs/performance.md makes of the reports of npm run bench:web.
import assert from "node:assert/strict";
import { test } from "node:test";
import { tableOf } from "../../scripts/performance_table.mjs";

const row = (peer, length, more = {}) => ({
  place: "node",
  group: "forward",
  peer,
  threads: 1,
  status: "timed",
  resident: false,
  shape: { q_len: length, kv_len: length },
  ms: { median: length / 100 },
  gflops: 40,
  gbps: 8,
  ...more,
});

const report = (rows) => ({ schema: "heed-bench-web", schema_version: 2, rows });

test("ProgramsAreLinesAndLengthsColumns", () => {
  const rows = [row("heed", 128), row("other", 128), row("heed", 512), row("other", 512)];
  assert.equal(
    tableOf(report(rows), 1),
    [
      "**node, forward** (milliseconds a call, GFLOP/s)",
      "",
      "| program | 128 | 512 |",
      "|---:|---:|---:|",
      "| `heed` | 1.28, 40.0 | 5.12, 40.0 |",
      "| `other` | 1.28, 40.0 | 5.12, 40.0 |",
    ].join("\n"),
  );
});

test("WhatFailedSaysSoAndWhatNeverRanIsLeftOut", () => {
  const rows = [
    row("heed", 4096),
    row("other", 4096, { status: "failed" }),
    row("third", 4096, { status: "refused" }),
  ];
  const table = tableOf(report(rows), 1);
  assert.match(table, /\| `other` \| failed \|/);
  assert.doesNotMatch(table, /third/);
});

test("DecodingIsGivenInGigabytesAndKeptKeysAreAColumn", () => {
  const shape = { q_len: 1, kv_len: 4096 };
  const rows = [
    row("heed", 0, { group: "decode", shape, ms: { median: 2 } }),
    row("heed", 0, { group: "decode", shape, resident: true, ms: { median: 1 } }),
  ];
  const table = tableOf(report(rows), 1);
  assert.match(table, /\| program \| 4096 \| 4096, keys kept \|/);
  assert.match(table, /\(milliseconds a call, GB\/s\)[\s\S]*\| 2.00, 8.0 \| 1.00, 8.0 \|/);
});

test("GradientsOfMechanismsAreOneLineEach", () => {
  const gradient = (mechanism, mask, ms, more) => ({
    mechanism,
    mask,
    status: "timed",
    threads: 1,
    ms: { median: ms },
    forward_ms: { median: 2 },
    max_error: 1e-8,
    ...more,
  });
  const rows = [
    gradient("sigmoid", "full", 5, { gflops: 80.25, peak_bytes: 2048 }),
    gradient("sigmoid", "causal", 3, { gflops: 70 }),
    gradient("retention", "full", 7),
    gradient("top_k", "full", 1, { status: "refused" }),
  ];
  assert.equal(
    tableOf({ schema: "heed-bench-backward", rows }, 1).split("\n").slice(2).join("\n"),
    [
      "| `sigmoid` | 5.00 | 2.50x | 3.00 | 1.50x | 80.3 | 2 | 1e-8 |",
      "| `retention` | 7.00 | 3.50x |  |  | - | - | 1e-8 |",
    ].join("\n"),
  );
});

test("PlacesAndThreadsStandApart", () => {
  const rows = [
    row("heed", 128),
    row("heed", 128, { place: "chromium" }),
    row("heed", 128, { threads: 2, ms: { median: 0.7 } }),
  ];
  const table = tableOf(report(rows), 1);
  assert.match(table, /\*\*node, forward\*\*[\s\S]*\*\*chromium, forward\*\*/);
  assert.doesNotMatch(table, /0\.700,/);
  assert.match(tableOf(report(rows), 2), /0\.700,/);
});

/** A timed row of heed-bench with one number of heads. */
const timed = (mechanism, dtype, head_dim, ms, more = {}) => ({
  mechanism,
  dtype,
  peer: "heed",
  threads: 1,
  status: "timed",
  shape: { head_dim, q_len: 512, mask: "full" },
  ms: { median: ms },
  gflops: 300 / ms,
  fraction_of_fma_peak: 2 / ms,
  max_error: 1e-7,
  ...more,
});

const benchTable = (rows, threads = 1) =>
  tableOf({ schema: "heed-bench", rows, peers: [] }, threads);
const twoThreads = { threads: 2 };

test("StorageTypesAreColumnsBesideEachOther", () => {
  const rows = ["float32", "bfloat16"].map((dtype, i) =>
    timed("attention", dtype, 64, 4 / (i + 1)),
  );
  assert.equal(
    benchTable(rows),
    [
      "| head_dim | length | mask | float32 | bfloat16 | float32 of peak | bfloat16 is faster |",
      "|---:|---:|---:|---:|---:|---:|---:|",
      "| 64 | 512 | full | 75 | 150 | 50 % | 2.00x |",
    ].join("\n"),
  );
});

test("StorageTypesAreThoseOfTheThreadsAsked", () => {
  const rows = [
    timed("attention", "float32", 64, 4),
    timed("attention", "bfloat16", 64, 2),
    timed("attention", "float32", 64, 3, twoThreads),
    timed("attention", "bfloat16", 64, 1, twoThreads),
  ];
  assert.match(benchTable(rows, 1), /\| 75 \| 150 \| 50 % \| 2.00x \|$/);
  assert.match(benchTable(rows, 2), /\| 100 \| 300 \| 67 % \| 3.00x \|$/);
});

test("StorageTypesThatLackARowAreNoTable", () => {
  const rows = [
    timed("attention", "float32", 64, 4),
    timed("attention", "bfloat16", 64, 2),
    timed("attention", "float32", 128, 4),
  ];
  assert.throws(() => benchTable(rows), /0 results for the cell bfloat16 128 512 full/);
  const halves = [timed("attention", "float32", 64, 4), timed("attention", "float16", 64, 4)];
  assert.throws(() => benchTable(halves), /0 results for the cell bfloat16/);
});

test("HeadSizesOfMechanismsAreColumns", () => {
  const long = { shape: { head_dim: 64, q_len: 4096, mask: "full" } };
  const longWide = { shape: { head_dim: 128, q_len: 4096, mask: "full" } };
  const rows = [
    timed("linear", "float32", 64, 4),
    timed("linear", "float32", 64, 2, twoThreads),
    timed("linear", "float32", 64, 6, long),
    timed("linear", "float32", 128, 3),
    timed("linear", "float32", 128, 5, longWide),
    timed("retention", "float32", 64, 4),
    timed("retention", "float32", 128, 3),
  ];
  assert.equal(
    benchTable(rows),
    [
      "| mechanism | length | mask | head_dim 64 | head_dim 128 |",
      "|---:|---:|---:|---:|---:|",
      "| `linear` | 512 | full | 75, 50 % | 100, 67 % |",
      "| `linear` | 4096 | full | 50, 33 % | 60, 40 % |",
      "| `retention` | 512 | full | 75, 50 % | 100, 67 % |",
    ].join("\n"),
  );
});

test("HeadSizesOfRowsThatTheTableCannotTellApartAreNoTable", () => {
  const rows = [
    timed("linear", "float32", 64, 4),
    timed("linear", "bfloat16", 64, 4),
    timed("retention", "float32", 64, 4),
    timed("retention", "float32", 128, 4),
  ];
  assert.throws(() => benchTable(rows), /2 results for the cell `linear` 512 full 64/);
  assert.throws(() => benchTable(rows.slice(1)), /0 results for the cell `linear` 512 full 128/);
});
