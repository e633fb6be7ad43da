// Which cases the stages of scripts/gpu-check measure, with a benchmark that only tells what it was asked.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test as plainTest } from "node:test";
import { root } from "../../scripts/toolchain.mjs";

const posix = process.platform !== "win32";
const test = (name, run) => plainTest(name, { skip: !posix && "needs bash" }, run);

const stages = [
  "bench",
  "bench-float16",
  "bench-float8",
  "bench-rest",
  "bench-recurrent",
  "bench-backward",
];

function writeProgram(path, text) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `#!/bin/sh\n${text}\n`);
  chmodSync(path, 0o755);
}

/** The arguments with which a stage calls heed-bench. */
function argumentsOf(stage, environment = {}) {
  const folder = mkdtempSync(join(tmpdir(), "heed-gpu-check-"));
  try {
    mkdirSync(join(folder, "scripts"));
    copyFileSync(join(root, "scripts/gpu-check"), join(folder, "scripts/gpu-check"));
    writeProgram(
      join(folder, "build/gpu/native_bench/heed-bench"),
      `for argument; do echo "argument $argument"; done`,
    );
    writeProgram(join(folder, "bin/nvidia-smi"), "echo a GPU of the tests");
    const { status, stdout, stderr } = spawnSync(join(folder, "scripts/gpu-check"), [stage], {
      encoding: "utf8",
      env: { ...process.env, PATH: `${join(folder, "bin")}:${process.env.PATH}`, ...environment },
    });
    assert.equal(status, 0, stderr);
    return [...stdout.matchAll(/^argument (.*)$/gm)].map(([, argument]) => argument);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const filterOf = (stage) => {
  const list = argumentsOf(stage);
  return new RegExp(list[list.indexOf("--filter") + 1]);
};

test("EveryCaseHasItsStage", () => {
  const filters = stages.map((stage) => [stage, filterOf(stage)]);
  const prompt = (type) => `scaled_dot_product/b2/h16/d128/l8192/causal${type}/cuda`;
  const expected = [
    [prompt("/bfloat16"), ["bench", "bench-backward"]],
    ["scaled_dot_product/h16/d192:128/l16384/full/bfloat16/cuda", ["bench", "bench-backward"]],
    [prompt("/float16"), ["bench-float16"]],
    [prompt("/float8_e4m3"), ["bench-float8"]],
    ["scaled_dot_product/h16/d192:128/l16384/full/float8_e4m3/cuda", ["bench-float8"]],
    [prompt(""), ["bench-rest"]],
    ["scaled_dot_product/b32/h32:8/d128/l1x4096/full/bfloat16/cuda", ["bench-rest"]],
    ["mamba2/h16/d128/l4096/full/bfloat16/cuda", ["bench-recurrent", "bench-backward"]],
    ["linear/h8/d64/l4096/causal/cuda", ["bench-recurrent"]],
  ];
  for (const [name, own] of expected) {
    const found = filters.filter(([, filter]) => filter.test(name)).map(([stage]) => stage);
    assert.deepEqual(found, own, name);
  }
});

test("StagesWriteReportsOfTheirNames", () => {
  for (const stage of stages) {
    const list = argumentsOf(stage, { HEED_GPU_PEERS: "heed,heed_hopper" });
    assert.ok(list.join(" ").startsWith("--device cuda --filter "), stage);
    assert.equal(list[list.indexOf("--json") + 1], `tests/cuda/results/${stage}.json`);
    assert.equal(list[list.indexOf("--peers") + 1], "heed,heed_hopper");
    assert.equal(list.includes("--backward"), stage === "bench-backward");
  }
});
