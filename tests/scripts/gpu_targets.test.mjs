// What `scripts/gpu-check targets` says of reports of heed-bench --device cuda.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test as plainTest } from "node:test";
import { root } from "../../scripts/toolchain.mjs";

const python = spawnSync("python3", ["--version"]).status === 0;
const test = (name, run) => plainTest(name, { skip: !python && "no python3" }, run);

const reportOf = (rows, gpu = "NVIDIA H200") => ({
  machine: { gpu: { name: gpu } },
  probes: {
    fma: [
      { target: "fma", dtype: "float32", gflops: 60_000 },
      { target: "wgmma", dtype: "bfloat16", gflops: 800_000 },
    ],
    stream: [{ copy_gbps: 4000 }],
  },
  rows,
});

const prompt = (peer, length, gflops, more = {}) => ({
  case: `l${length}/full/bfloat16`,
  mechanism: "scaled_dot_product",
  dtype: "bfloat16",
  shape: { head_dim: 128, head_dim_v: 128, q_len: length, kv_len: length, mask: "full" },
  peer,
  status: "timed",
  gflops,
  ms: { median: 1e6 / gflops },
  cold_ms: { median: 1 },
  ...more,
});

const wide = (head_dim, length) => ({
  shape: { head_dim, head_dim_v: head_dim, q_len: length, kv_len: length, mask: "full" },
});

const token = (peer, batch, keys, milliseconds, bytes) => ({
  ...prompt(peer, 1, 1),
  shape: { batch, num_heads: 32, num_kv_heads: 8, head_dim: 128, q_len: 1, kv_len: keys },
  // Warm keys lie in the cache: decoding must not be judged by them.
  ms: { median: milliseconds / 100 },
  cold_ms: { median: milliseconds },
  bytes,
});

/** The lines of the table, by their targets, and all that was said. */
function targetsOf(reports) {
  const folder = mkdtempSync(join(tmpdir(), "heed-targets-"));
  try {
    for (const [stage, report] of Object.entries(reports)) {
      const text = typeof report === "string" ? report : JSON.stringify(report);
      writeFileSync(join(folder, `${stage}.json`), text);
    }
    const { status, stdout, stderr } = spawnSync(join(root, "scripts/gpu-check"), ["targets"], {
      encoding: "utf8",
      env: { ...process.env, HEED_GPU_RESULTS: folder },
    });
    assert.equal(status, 0, stderr);
    assert.equal(readFileSync(join(folder, "targets.txt"), "utf8"), stdout);
    const cells = stdout.split("\n").map((line) => line.split(" | ").map((cell) => cell.trim()));
    return { text: stdout, rows: new Map(cells.map(([target, ...rest]) => [target, rest])) };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const forward = (length) => `forward, head_dim 128, full, ${length} tokens`;

test("TheFasterOfBothPathsCounts", () => {
  const rows = [prompt("heed", 8192, 300_000), prompt("heed_hopper", 8192, 620_000)];
  const more = [prompt("cudnn", 8192, 650_000), prompt("heed", 16384, 599_000)];
  const { rows: table } = targetsOf({ bench: reportOf([...rows, ...more]) });
  assert.deepEqual(table.get(`${forward(8192)}: >= 600 TFLOP/s`), ["620.0 TFLOP/s", "yes"]);
  assert.deepEqual(table.get(`${forward(8192)}: >= 0.9 x cuDNN`), ["0.95 x cuDNN", "yes"]);
  assert.deepEqual(table.get(`${forward(8192)}, then: >= 1 x cuDNN`), ["0.95 x cuDNN", "no"]);
  assert.deepEqual(table.get(`${forward(16384)}: >= 600 TFLOP/s`), ["599.0 TFLOP/s", "no"]);
  assert.deepEqual(table.get(`${forward(16384)}: >= 0.9 x cuDNN`), ["not measured", "-"]);
});

test("WhatIsWrongIsNeverReached", () => {
  const wrong = { status: "wrong", reason: "max error", gflops: undefined, ms: undefined };
  const rows = [prompt("heed", 8192, 700_000), prompt("heed_hopper", 8192, 1, wrong)];
  const { rows: table } = targetsOf({ bench: reportOf(rows) });
  const expected = ["700.0 TFLOP/s", "no: heed_hopper is wrong"];
  assert.deepEqual(table.get(`${forward(8192)}: >= 600 TFLOP/s`), expected);
});

test("TheWorstCaseDecidesAndAMissingOneIsNoSuccess", () => {
  const rows = [
    prompt("heed_hopper", 8192, 440_000, wide(64, 8192)),
    prompt("heed_hopper", 16384, 420_000, wide(64, 16384)),
    prompt("heed_hopper", 8192, 610_000, wide(256, 8192)),
    prompt("heed_hopper", 16384, 1, { ...wide(256, 16384), status: "refused" }),
  ];
  const { rows: table } = targetsOf({ bench: reportOf(rows) });
  const title = (dim, least) =>
    `forward, head_dim ${dim}, full, 8192 and 16384 tokens: >= ${least} TFLOP/s`;
  assert.deepEqual(table.get(title(64, 430)), ["420.0 to 440.0 TFLOP/s", "no"]);
  assert.deepEqual(table.get(title(256, 600)), ["610.0 TFLOP/s", "no: 1 of 2 not measured"]);
});

test("DecodingIsJudgedByColdTimes", () => {
  const rows = [65536, 131072].flatMap((keys) => [
    token("heed", 1, keys, 0.1, 3.1e8),
    token("cudnn", 1, keys, 0.14, 3.1e8),
    token("heed", 32, keys, 1, 3.2e9),
  ]);
  const short = [token("heed", 1, 1024, 0.006, 1), token("heed", 1, 4096, 0.012, 1)];
  const { rows: table } = targetsOf({ "bench-rest": reportOf([...rows, ...short]) });
  const long = (batch) => `decoding, batch ${batch}, 65536 and 131072 keys`;
  assert.deepEqual(table.get(`${long(1)}: >= 3 TB/s`), ["3.10 TB/s", "yes"]);
  assert.deepEqual(table.get(`${long(1)}: >= 1.5 x cuDNN`), ["1.40 x cuDNN", "no"]);
  assert.deepEqual(table.get(`${long(32)}: >= 80 % of copy`), ["80.0 % of copy", "yes"]);
  const tokens = "decoding, batch 1, 1024 and 4096 keys: <= 10 us";
  assert.deepEqual(table.get(tokens), ["6.0 to 12.0 us", "no"]);
});

test("Float32IsJudgedByMultiplyAddsOfItsReport", () => {
  const more = { dtype: "float32" };
  const rows = [8192, 16384].map((length) => prompt("heed", length, 36_000, more));
  const { rows: table } = targetsOf({ "bench-rest": reportOf(rows) });
  const title = "forward, float32, head_dim 128, full, 8192 and 16384 tokens: >= 60 % of fma";
  assert.deepEqual(table.get(title), ["60.0 % of fma", "yes"]);
});

test("GradientsHaveTheirTypeInTheirName", () => {
  const gradient = (peer, dtype, length, gflops) => ({
    case: `scaled_dot_product/h16/d128/l${length}/full/${dtype}/cuda`,
    mechanism: "scaled_dot_product",
    ...{ head_dim: 128, q_len: length, kv_len: length, mask: "full" },
    ...{ peer, status: "timed", gflops, ms: { median: 1 } },
  });
  const rows = [8192, 16384].flatMap((length) => [
    gradient("heed", "float16", length, 990_000),
    gradient("heed", "bfloat16", length, 200_000),
    gradient("heed_hopper", "bfloat16", length, 460_000),
  ]);
  const { rows: table } = targetsOf({ "bench-backward": reportOf(rows) });
  const title = "backward, head_dim 128, full, 8192 and 16384 tokens: >= 450 TFLOP/s";
  assert.deepEqual(table.get(title), ["460.0 TFLOP/s", "yes"]);
});

test("ASocketIsComparedWithThePlainCaseOfItsReport", () => {
  const of = (peer, mask, gflops) =>
    prompt(peer, 8192, gflops, {
      case: `scaled_dot_product/b2/h16/d128/l8192/${mask}/bfloat16/cuda`,
    });
  const rows = [
    ...[of("heed", "full", 300_000), of("heed_hopper", "full", 600_000)],
    ...[of("cudnn", "full", 900_000), of("heed_hopper", "full/cap30", 480_000)],
    ...[of("heed", "full/sinks", 300_000), of("heed_hopper", "full/sinks", 500_000)],
    of("heed_hopper", "causal/w1023", 500_000),
  ];
  const { rows: table } = targetsOf({ "bench-sockets": reportOf(rows) });
  const title = (socket, most) => `${socket}, head_dim 128, 8192 tokens: <= ${most} % slower`;
  assert.deepEqual(table.get(title("softcap", 25)), ["25.0 % slower", "yes"]);
  assert.deepEqual(table.get(title("sinks", 10)), ["20.0 % slower", "no"]);
  assert.deepEqual(table.get(title("ALiBi", 10)), ["not measured", "-"]);
  assert.deepEqual(table.get(title("window of 1024", 10)), ["not measured", "-"]);
});

const float8 = (head_dim, mask) =>
  `forward, float8_e4m3, head_dim ${head_dim}, ${mask}, 8192 and 16384 tokens`;

test("Float8IsShownAndIsNoTarget", () => {
  const rowOf = (peer, length, gflops) =>
    prompt(peer, length, gflops, { dtype: "float8_e4m3", fraction_of_fma_peak: gflops / 1.6e6 });
  const rows = [
    rowOf("heed", 8192, 300_000),
    rowOf("heed_hopper", 8192, 800_000),
    rowOf("heed_hopper", 16384, 960_000),
  ];
  const { text, rows: table } = targetsOf({ "bench-float8": reportOf(rows) });
  assert.deepEqual(table.get(float8(128, "full")), [
    "800.0 to 960.0 TFLOP/s, 50 to 60 % of its peak",
  ]);
  assert.deepEqual(table.get(float8(64, "causal")), ["not measured"]);
  assert.match(text, /^bench-float8: NVIDIA H200$/m);
  assert.match(text, /^0 of \d+ reached$/m);
  assert.equal(table.get(`${forward(8192)}: >= 600 TFLOP/s`)[1], "-");
});

test("Float8ThatIsWrongIsSaid", () => {
  const more = { dtype: "float8_e4m3" };
  const wrong = { ...more, status: "wrong", gflops: undefined, ms: undefined };
  const rows = [prompt("heed", 8192, 300_000, more), prompt("heed_hopper", 8192, 1, wrong)];
  const { rows: table } = targetsOf({ "bench-float8": reportOf(rows) });
  assert.deepEqual(table.get(float8(128, "full")), ["300.0 TFLOP/s, heed_hopper is wrong"]);
});

test("WithoutReportsNothingIsMeasured", () => {
  const { text, rows } = targetsOf({ bench: '{"rows": [' });
  assert.match(text, /bench: no report\n[\s\S]*bench-rest: no report/);
  assert.deepEqual(rows.get(`${forward(8192)}: >= 600 TFLOP/s`), ["not measured", "-"]);
  assert.match(text, /^0 of \d+ reached$/m);
});

test("AnotherGpuThanTheTargetsIsSaid", () => {
  const note = /The targets are for an H200/;
  const other = targetsOf({ "bench-rest": reportOf([], "NVIDIA H100 80GB HBM3") }).text;
  assert.match(other, /bench-rest: NVIDIA H100/);
  assert.match(other, note);
  assert.doesNotMatch(targetsOf({ "bench-rest": reportOf([]) }).text, note);
});
