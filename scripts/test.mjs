// npm test: set up, build both worlds, run every runner; the first failure ends it.
//   npm test -- --only vitest,playwright     some of the steps
//   npm run test:full                        also the slow ones
import { existsSync } from "node:fs";
import { parseArgs } from "node:util";
import { buildNative, buildPackage, buildWasm, buildWeb } from "./build.mjs";
import { checkConsumer } from "./consumer.mjs";
import { which } from "./process.mjs";
import { ctest, engines, interpreter, nodeTest, playwright, Tally, vitest } from "./runners.mjs";
import { setup } from "./setup.mjs";
import { step, stepTimes } from "./steps.mjs";
import { lineOf } from "./tally.mjs";
import { toolchain } from "./toolchain.mjs";
import { treeTests } from "./tree_tests.mjs";

const { full, only: names } = parseArgs({
  options: { full: { type: "boolean", default: false }, only: { type: "string" } },
}).values;
const only = names?.split(",");

// For Arm, compiled and emulated here; where a tool is missing they are skipped.
async function testArm64(tools, tally) {
  const missing = ["aarch64-linux-gnu-g++", "qemu-aarch64-static"].filter((name) => !which(name));
  if (missing.length) return tally.skip("ctest arm64", `no ${missing.join(", no ")}`);
  await buildNative(tools, "arm64");
  await tally.run(ctest(tools, "arm64"));
}

async function testDeviceCode(tools, tally) {
  if (which("nvcc") || existsSync("/usr/local/cuda/bin/nvcc")) {
    await tally.run(interpreter(tools));
  } else {
    tally.skip("ctest interpret", "no nvcc");
  }
}

// name, title, work; the slow ones run in test:full only.
function steps(tools, tally) {
  const env = full ? { HEED_FULL_TESTS: "1" } : {};
  return [
    ["native", "Build natively", () => buildNative(tools)],
    ["ctest", "C++ tests", () => tally.run(ctest(tools, "native-tests", env))],
    ["consumer", "Consumer of the installed library", () => checkConsumer(tools)],
    ["wasm", "Build WASM", () => buildWasm(tools)],
    ["package", "Build the npm package", () => buildPackage(tools)],
    ["layout", "Tests of the tree", () => tally.run(nodeTest(tools, treeTests()))],
    ["vitest", "JavaScript tests", () => tally.run(vitest(tools, env))],
    ["web", "Build the demo page", () => buildWeb(tools)],
    ["playwright", "Browser tests", () => tally.run(playwright(tools, env))],
    full && ["engines", "Firefox and WebKit", () => tally.run(engines(tools))],
    full && ["asan", "Build with sanitizers", () => buildNative(tools, "asan")],
    full && ["ctest-asan", "C++ tests, sanitizers", () => tally.run(ctest(tools, "asan"))],
    full && ["tsan", "Build with the thread sanitizer", () => buildNative(tools, "tsan")],
    full && ["ctest-tsan", "Thread tests, thread sanitizer", () => tally.run(ctest(tools, "tsan"))],
    full && ["interpret", "Device code, interpreted", () => testDeviceCode(tools, tally)],
    full && ["arm64", "C++ tests for Arm, emulated", () => testArm64(tools, tally)],
  ].filter(Boolean);
}

const tally = new Tally();
let failure = null;
try {
  await step("Set-up", () => setup({ runtimes: true }));
  const list = steps(toolchain(), tally);
  const unknown = only?.find((name) => !list.some(([known]) => known === name));
  if (unknown) throw new Error(`no step "${unknown}"; steps: ${list.map(([n]) => n).join(", ")}`);
  for (const [name, title, work] of list) {
    if (!only || only.includes(name)) await step(title, work);
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
