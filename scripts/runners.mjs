// The test runners: how each is called, where its counts are, which lines are its summary.
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { run } from "./process.mjs";
import {
  add,
  lineOf,
  none,
  readCtest,
  readCtestText,
  readEngines,
  readNodeTest,
  readPlaywright,
  readVitest,
  slowestOfPlaywright,
} from "./tally.mjs";
import { root } from "./toolchain.mjs";

const results = join(root, "build/results");

// Collects the runners' counts and summary lines.
export class Tally {
  total = none;
  summaries = [];

  // A runner that is not here: one skipped test, and a line that says why.
  skip(name, reason) {
    this.total = add(this.total, { ...none, skipped: 1 });
    this.summaries.push(`${name}: skipped, ${reason}`);
    console.log(`skipped: ${reason}`);
  }

  // `report` is the file that the runner writes, read by `read`; without one, `read` gets its output.
  // `reports` is a folder of more of them, which `read` knows. `slowest` says which tests took longest.
  async run({ name, command, args, env, report, reports, read, summary, slowest }) {
    mkdirSync(results, { recursive: true });
    for (const stale of [report, reports].filter(Boolean)) {
      rmSync(stale, { recursive: true, force: true });
    }
    let output = "";
    let failure = null;
    try {
      output = await run(command, args, { cwd: root, env: withColour(env) });
    } catch (error) {
      failure = error;
      output = error.output ?? "";
    }
    const counts = report && !existsSync(report) ? none : read(report ?? output);
    if (!failure && lineOf(counts) === lineOf(none)) failure = new Error(`${name} ran no test`);
    // A runner that fails before or after its tests counts as one failure.
    const missed = failure && counts.failed === 0 ? 1 : 0;
    this.total = add(this.total, { ...counts, failed: counts.failed + missed });
    if (reports) this.summaries.push(`${name}: ${lineOf(counts)}`);
    for (const line of plain(output).split("\n")) {
      if (summary.test(line)) this.summaries.push(`${name}: ${line.trim()}`);
    }
    if (slowest && existsSync(report)) {
      this.summaries.push(...slowest(report).map((line) => `${name}: ${line}`));
    }
    if (failure) throw failure;
  }
}

// Runners see a pipe, and some guess wrongly what lies behind it.
function withColour({ FORCE_COLOR, NO_COLOR, ...env }) {
  return process.stdout.isTTY ? { ...env, FORCE_COLOR: "1" } : { ...env, NO_COLOR: "1" };
}

// Colour codes would hide a line from its pattern.
function plain(text) {
  return text.replaceAll(/\x1b\[[0-9;]*m/g, "");
}

export function ctest(tools, preset, extra = {}) {
  const report = join(results, `${preset}.xml`);
  const reports = join(root, "build", preset.replace(/-tests$/, ""), "test_reports");
  return {
    name: `ctest ${preset}`,
    command: "ctest",
    args: ["--preset", preset, "-j2", "--no-tests=error", "--output-junit", report],
    env: { ...tools.env, ...extra },
    report,
    reports,
    read: (file) => readCtest(file, reports),
    summary: /% tests passed/,
  };
}

// The kernels of heed::cuda as nvcc made them, interpreted.
export function interpreter(tools) {
  return {
    name: "ctest interpret",
    command: join(root, "scripts/gpu-check"),
    args: ["interpret"],
    env: tools.env,
    read: (output) => readCtestText(plain(output)),
    summary: /% tests passed/,
  };
}

export function nodeTest(tools, files) {
  return {
    name: "node --test",
    command: process.execPath,
    args: ["--test", "--test-reporter=spec", ...files],
    env: tools.env,
    read: (output) => readNodeTest(plain(output)),
    summary: /^\S+ (tests|pass|fail|skipped) \d+$/,
  };
}

export function vitest(tools, extra = {}) {
  const report = join(results, "vitest.json");
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
  const program = join(root, "node_modules/vitest/vitest.mjs");
  return {
    name: "vitest",
    command: process.execPath,
    args: [program, "run", "--config", "tests/js/vitest.config.ts", ...reporters],
    env: { ...tools.env, ...extra },
    report,
    read: readVitest,
    summary: /^\s*(Test Files|Tests)\s+\d+/,
  };
}

export function playwright(tools, extra = {}) {
  const report = join(results, "playwright.json");
  const program = join(root, "node_modules/@playwright/test/cli.js");
  const config = ["--config", "tests/e2e/playwright.config.ts"];
  return {
    name: "playwright",
    command: process.execPath,
    args: [program, "test", ...config, "--reporter=list,json"],
    env: { ...tools.env, PLAYWRIGHT_JSON_OUTPUT_FILE: report, ...extra },
    report,
    read: readPlaywright,
    slowest: slowestOfPlaywright,
    summary: /^\s*\d+ (passed|failed|skipped|flaky|did not run)/,
  };
}

// Firefox and WebKit, where they are installed.
export function engines(tools) {
  return {
    name: "engines",
    command: process.execPath,
    args: ["--experimental-websocket", join(root, "scripts/check_engines.mjs")],
    env: tools.env,
    read: (output) => readEngines(plain(output)),
    summary: /^(SKIPPED|Firefox \d|WebKitGTK \d)/,
  };
}
