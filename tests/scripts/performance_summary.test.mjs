import assert from "node:assert/strict";
import { test } from "node:test";
import { summary } from "../../scripts/performance_summary.mjs";

const row = (peer, q_len, median, fraction = 0) => ({
  case: `l${q_len}`,
  peer,
  status: "timed",
  threads: 1,
  shape: { head_dim: 64, q_len, mask: "full" },
  ms: { median },
  fraction_of_fma_peak: fraction,
});

test("RangesAreOfLongSequencesAndTheShortOneStandsAlone", () => {
  const rows = [
    [row("heed", 128, 1, 0.5), row("libtorch", 128, 9), row("onednn", 128, 0.9)],
    [row("heed", 512, 2, 0.7), row("libtorch", 512, 3), row("onednn", 512, 2.2)],
    [row("heed", 4096, 10, 0.85), row("libtorch", 4096, 12), row("onednn", 4096, 25)],
    [{ ...row("heed", 4096, 1, 1), shape: { head_dim: 64, q_len: 4096, mask: "causal" } }],
  ].flat();
  const machine = { cpu_model: "A CPU (family 1)", simd: { chosen: "AVX2" } };
  const text = summary({ rows, machine, build: { commit: "abc" } }).replaceAll("\n", " ");
  assert.match(text, /512 to 4096 tokens, one core of an A CPU with AVX2 \(commit abc\)/);
  assert.match(text, /heed runs at 70 to 85 % of the FMA peak/);
  assert.match(text, /PyTorch takes 1\.20 to 1\.50 times as long, oneDNN 1\.10 to 2\.50 times\./);
  assert.match(text, /At 128 tokens heed reaches 50 %, and oneDNN takes 0\.90 times as long\.$/);
});
