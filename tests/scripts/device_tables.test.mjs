// What docs/performance.md makes of a report of heed-bench --device cuda.
import assert from "node:assert/strict";
import { test } from "node:test";
import { tableOf } from "../../scripts/performance_table.mjs";

const shape = { batch: 1, num_heads: 32, num_kv_heads: 8, head_dim: 128, mask: "full" };

const row = (peer, queries, keys, more = {}) => ({
  case: `l${queries}x${keys}`,
  mechanism: "scaled_dot_product",
  dtype: "bfloat16",
  device: "cuda",
  peer,
  threads: 1,
  status: "timed",
  shape: { ...shape, q_len: queries, kv_len: keys },
  ms: { median: 2 },
  cold_ms: { median: 0.05 },
  bytes: 2e8,
  gflops: 600000,
  ...more,
});

const report = (rows) => ({
  schema: "heed-bench",
  machine: { gpu: { name: "NVIDIA H200" } },
  peers: [{ id: "heed" }, { id: "cudnn" }],
  rows,
});

test("PromptsHaveWarmTimesAndATeraflopRate", () => {
  const rows = [row("heed", 4096, 4096), row("cudnn", 4096, 4096, { status: "refused" })];
  assert.equal(
    tableOf(report(rows), 1),
    [
      "**warm milliseconds a call, TFLOP/s**",
      "",
      "|  | type | batch | heads | head_dim | length | mask | heed | cudnn |",
      "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
      "|  | bfloat16 | 1 | 32:8 | 128 | 4096 | full | 2.00, 600.0 | - |",
    ].join("\n"),
  );
});

test("DecodingHasColdTimesAndAByteRate", () => {
  const rows = [row("heed", 1, 65536), row("cudnn", 1, 65536, { status: "wrong" })];
  const table = tableOf(report(rows), 1);
  assert.match(table, /one query, cold microseconds a call, GB\/s/);
  assert.match(table, /\| 1 x 65536 \| full \| 50\.0, 4000 \| wrong \|/);
});

test("BothKindsStandApart", () => {
  const table = tableOf(report([row("heed", 64, 64), row("heed", 1, 64)]), 1);
  assert.match(table, /TFLOP\/s\*\*[\s\S]*GB\/s\*\*/);
});
