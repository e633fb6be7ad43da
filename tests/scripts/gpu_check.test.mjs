// The stages of scripts/gpu-check, with programs in place of tests and benchmark.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
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
  "bench-sockets",
];

function writeProgram(path, text) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `#!/bin/sh\n${text}\n`);
  chmodSync(path, 0o755);
}

/** A folder with gpu-check, programs in place of those that a build makes, and a GPU. */
function withPrograms(programs, use) {
  const folder = mkdtempSync(join(tmpdir(), "heed-gpu-check-"));
  try {
    mkdirSync(join(folder, "scripts"));
    copyFileSync(join(root, "scripts/gpu-check"), join(folder, "scripts/gpu-check"));
    for (const [path, text] of Object.entries(programs)) writeProgram(join(folder, path), text);
    writeProgram(join(folder, "bin/nvidia-smi"), "echo a GPU of the tests");
    return use(folder, (stage, environment = {}) =>
      spawnSync(join(folder, "scripts/gpu-check"), [stage], {
        encoding: "utf8",
        env: { ...process.env, PATH: `${join(folder, "bin")}:${process.env.PATH}`, ...environment },
      }),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The arguments with which a stage calls heed-bench. */
function argumentsOf(stage, environment = {}) {
  const bench = 'for argument; do echo "argument $argument"; done';
  return withPrograms({ "build/gpu/native_bench/heed-bench": bench }, (folder, run) => {
    const { status, stdout, stderr } = run(stage, environment);
    assert.equal(status, 0, stderr);
    return [...stdout.matchAll(/^argument (.*)$/gm)].map(([, argument]) => argument);
  });
}

const filterOf = (stage) => {
  const list = argumentsOf(stage);
  return new RegExp(list[list.indexOf("--filter") + 1]);
};

test("EveryCaseHasItsStage", () => {
  const filters = stages.map((stage) => [stage, filterOf(stage)]);
  const prompt = (type) => `scaled_dot_product/b2/h16/d128/l8192/causal${type}/cuda`;
  const expected = [
    [prompt("/bfloat16"), ["bench", "bench-backward", "bench-sockets"]],
    [prompt("/w1023/bfloat16"), ["bench-sockets"]],
    [prompt("/device_keys8192/bfloat16"), ["bench-sockets"]],
    ["scaled_dot_product/b2/h32:4/d64/l8192/full/bfloat16/cuda", ["bench-sockets"]],
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

/** A GoogleTest program: of each test a status and what it says. */
const tests = (results) => `
case "$*" in
  *gtest_list_tests*)
    printf 'Every/Suite.\\n'
    ${results.map(([name]) => `printf '  ${name}  # GetParam() = 1\\n'`).join("\n")} ;;
  ${results.map(([name, status, says]) => `*=Every/Suite.${name}) echo '${says}'; exit ${status} ;;`).join("\n")}
esac`;

const passing = tests([["Fits/0", 0, "[  PASSED  ] 1 test."]]);
const testProgram = "build/gpu/tests/cuda/heed_cuda_tests";
const benchTestProgram = "build/gpu/native_bench/tests/cuda/heed_bench_cuda_tests";

test("TestsDoNotTakeEachOtherAlong", () => {
  const mixed = tests([
    ["First/0", 0, "[  PASSED  ] 1 test."],
    ["Breaks/0", 1, "an illegal address"],
    ["Last/0", 0, "[  PASSED  ] 1 test."],
  ]);
  withPrograms({ [testProgram]: mixed, [benchTestProgram]: passing }, (_folder, run) => {
    const { status, stdout, stderr } = run("correctness");
    assert.equal(status, 1);
    assert.match(stdout, /^FAILED {2}Every\/Suite.Breaks\/0: status 1\n {4}an illegal address$/m);
    assert.match(stdout, /^4 tests: 3 passed, 0 skipped, 1 failed, 0 hang, 0 not run$/m);
    assert.match(stderr, /correctness failed/);
  });
});

test("ATestThatHangsEndsAndIsTold", () => {
  const slow = tests([["Fits/0", 0, "[  PASSED  ] 1 test."]]).replace("exit 0", "sleep 300");
  withPrograms({ [testProgram]: slow }, (_folder, run) => {
    const { status, stdout } = run("hopper", { HEED_GPU_LIMIT: "3" });
    assert.match(stdout, /^1 tests: 0 passed, 0 skipped, 0 failed, 0 hang, 1 not run$/m);
    assert.equal(status, 1);
  });
});

test("TestsThatPassAreAllThatIsNeeded", () => {
  withPrograms({ [testProgram]: passing, [benchTestProgram]: passing }, (_folder, run) => {
    const { status, stdout } = run("correctness");
    assert.match(stdout, /^2 tests: 2 passed, 0 skipped, 0 failed, 0 hang, 0 not run$/m);
    assert.equal(status, 0);
  });
});

test("TestsThatAllSkipAreNoSuccess", () => {
  const skipping = tests([["Fits/0", 0, "no GPU: found none\n[  SKIPPED ] 1 test."]]);
  withPrograms({ [testProgram]: skipping }, (_folder, run) => {
    const { status, stdout } = run("hopper");
    assert.match(stdout, /^skipped Every\/Suite.Fits\/0: no GPU: found none$/m);
    assert.equal(status, 1);
  });
});

test("AReportOfARunThatEndsEarlyIsKept", () => {
  const bench = 'for last; do :; done; echo "{}" > "$last.part"; exit 1';
  withPrograms({ "build/gpu/native_bench/heed-bench": bench }, (folder, run) => {
    assert.equal(run("bench").status, 1);
    const report = join(folder, "tests/cuda/results/bench.json");
    assert.equal(readFileSync(report, "utf8"), "{}\n");
  });
});

test("AShortLookTestsMeasuresAndJudges", () => {
  const bench = 'for last; do :; done; echo "measured $last" | tee "$last"';
  const programs = {
    [testProgram]: passing,
    [benchTestProgram]: passing,
    "build/gpu/native_bench/heed-bench": bench,
    "bin/python3": 'echo "targets of $2"',
  };
  withPrograms(programs, (folder, run) => {
    const { status, stdout, stderr } = run("short");
    assert.equal(status, 0, stderr);
    const measured = [...stdout.matchAll(/^measured tests\/cuda\/results\/(.*)$/gm)];
    assert.deepEqual(
      measured.map(([, name]) => name),
      ["short.json", "bench-backward.json"],
    );
    assert.match(stdout, /^targets of tests\/cuda\/results$/m);
  });
});

test("AShortLookEndsWhereInstructionsFail", () => {
  const broken = tests([["Fits/0", 1, "a wrong sum"]]);
  withPrograms({ [testProgram]: broken, [benchTestProgram]: passing }, (_folder, run) => {
    const { status, stdout, stderr } = run("short");
    assert.equal(status, 1);
    assert.equal(stdout.match(/^1 tests: /gm).length, 1);
    assert.match(stderr, /failed: instructions$/m);
  });
});

test("ProgramsOfAnotherCommitAreRefused", () => {
  withPrograms({ [testProgram]: passing }, (folder, run) => {
    const built = (commit) => writeFileSync(join(folder, "build/gpu/commit"), `${commit}\n`);
    for (const [commit, status] of [
      ["abc", 0],
      ["abc-dirty", 0],
      ["def", 1],
    ]) {
      built(commit);
      const result = run("hopper", { HEED_COMMIT: "abc" });
      assert.equal(result.status, status, result.stderr);
    }
    assert.match(run("hopper", { HEED_COMMIT: "abc" }).stderr, /are of def, and this is abc/);
  });
});
