// npm test: set up, build both worlds, run every runner; the first failure ends it.
//   npm test -- --only vitest,playwright     some of the steps
//   npm run test:full                        also the slow ones
import { existsSync } from "node:fs";
import { parseArgs } from "node:util";
import { buildNative, buildPackage, buildWasm, buildWeb } from "./build.mjs";
import { commandLine, refuseUnknown } from "./command_line.mjs";
import { checkConsumer } from "./consumer.mjs";
import { which } from "./process.mjs";
import { ctest, engines, interpreter, nodeTest, playwright, Tally, vitest } from "./runners.mjs";
import { setup } from "./setup.mjs";
import { step, stepTimes } from "./steps.mjs";
import { lineOf } from "./tally.mjs";
import { toolchain } from "./toolchain.mjs";
import { treeTests } from "./tree_tests.mjs";

const tally = new Tally();
const { full, only } = await commandLine(import.meta.url, readOptions);

// For Arm, compiled and emulated here; where a tool is missing they are skipped.
async function testArm64(tools) {
  const missing = ["aarch64-linux-gnu-g++", "qemu-aarch64-static"].filter((name) => !which(name));
  if (missing.length) return tally.skip("ctest arm64", `no ${missing.join(", no ")}`);
  await buildNative(tools, "arm64");
  await tally.run(ctest(tools, "arm64"));
}

async function testDeviceCode(tools) {
  if (which("nvcc") || existsSync("/usr/local/cuda/bin/nvcc")) {
    await tally.run(interpreter(tools));
  } else {
    tally.skip("ctest interpret", "no nvcc");
  }
}

// name, title, work; the slow ones run in test:full only.
function steps(full) {
  const env = full ? { HEED_FULL_TESTS: "1" } : {};
  const run = (runner) => (tools) => tally.run(runner(tools));
  return [
    ["native", "Build natively", (tools) => buildNative(tools)],
    ["ctest", "C++ tests", run((tools) => ctest(tools, "native-tests", env))],
    ["consumer", "Consumer of the installed library", (tools) => checkConsumer(tools)],
    ["wasm", "Build WASM", buildWasm],
    ["package", "Build the npm package", buildPackage],
    ["layout", "Tests of the tree", run((tools) => nodeTest(tools, treeTests()))],
    ["vitest", "JavaScript tests", run((tools) => vitest(tools, env))],
    ["web", "Build the demo page", buildWeb],
    ["playwright", "Browser tests", run((tools) => playwright(tools, env))],
    full && ["engines", "Firefox and WebKit", run(engines)],
    full && ["asan", "Build with sanitizers", (tools) => buildNative(tools, "asan")],
    full && ["ctest-asan", "C++ tests, sanitizers", run((tools) => ctest(tools, "asan"))],
    full && ["tsan", "Build with the thread sanitizer", (tools) => buildNative(tools, "tsan")],
    full && ["ctest-tsan", "Thread tests, thread sanitizer", run((tools) => ctest(tools, "tsan"))],
    full && ["interpret", "Device code, interpreted", testDeviceCode],
    full && ["arm64", "C++ tests for Arm, emulated", testArm64],
  ].filter(Boolean);
}

function readOptions(args) {
  const options = { full: { type: "boolean", default: false }, only: { type: "string" } };
  const { full, only } = parseArgs({ args, options }).values;
  const names = only?.split(",") ?? [];
  refuseUnknown(
    "step",
    names,
    steps(full).map(([name]) => name),
  );
  return { full, only: names };
}

let failure = null;
try {
  await step("Set-up", () => setup({ runtimes: true }));
  const tools = toolchain();
  for (const [name, title, work] of steps(full)) {
    if (only.length === 0 || only.includes(name)) await step(title, () => work(tools));
  }
} catch (error) {
  failure = error;
}

console.log(`\n${stepTimes().join("\n")}`);
console.log(`\n${tally.summaries.join("\n")}`);
const { total } = tally;
if (failure) {
  console.error(`\nFAILED: ${failure.message}`);
  process.exitCode = 1;
}
// A step that is no test runner, such as a build, is one failure.
console.log(lineOf({ ...total, failed: total.failed || (failure ? 1 : 0) }));
