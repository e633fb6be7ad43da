// The last line of npm test adds up what the runners say of themselves.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { isAtLeast } from "../../scripts/process.mjs";
import { ctest, Tally } from "../../scripts/runners.mjs";
import {
  add,
  lineOf,
  readCtest,
  readCtestText,
  readEngines,
  readNodeTest,
  readPlaywright,
  readVitest,
  slowestOfPlaywright,
} from "../../scripts/tally.mjs";

const folder = mkdtempSync(join(tmpdir(), "heed-tally-"));
after(() => rmSync(folder, { recursive: true }));

const newFolder = () => mkdtempSync(join(folder, "reports-"));

function file(text) {
  const path = join(newFolder(), "report");
  writeFileSync(path, text);
  return path;
}

test("ReadsEveryRunner", () => {
  const vitest = { numPassedTests: 5, numFailedTests: 1, numPendingTests: 2, numTodoTests: 1 };
  assert.deepEqual(readVitest(file(JSON.stringify(vitest))), { passed: 5, failed: 1, skipped: 3 });
  const playwright = { stats: { expected: 4, flaky: 1, unexpected: 2, skipped: 3 }, errors: [] };
  const counts = readPlaywright(file(JSON.stringify(playwright)));
  assert.deepEqual(counts, { passed: 5, failed: 2, skipped: 3 });
  const tap = "# tests 7\n# pass 4\n# fail 1\n# cancelled 0\n# skipped 1\n# todo 1\n";
  assert.deepEqual(readNodeTest(tap), { passed: 4, failed: 1, skipped: 2 });
  const engines =
    "SKIPPED firefox: absent\nWebKitGTK 2\n  right a.html, wide\n  WRONG b.html: not right\n";
  assert.deepEqual(readEngines(engines), { passed: 1, failed: 1, skipped: 1 });
});

test("NamesTheSlowestBrowserTests", () => {
  const spec = (title, ...durations) => {
    const results = durations.map((duration) => ({ duration }));
    return { file: "a.spec.ts", title, tests: [{ results }] };
  };
  const group = { specs: [spec("twice", 900, 2200)] };
  const report = { suites: [{ specs: [spec("short", 100), spec("long", 3000)], suites: [group] }] };
  assert.deepEqual(slowestOfPlaywright(file(JSON.stringify(report)), 2), [
    "slow, 3.1 s: a.spec.ts: twice",
    "slow, 3.0 s: a.spec.ts: long",
  ]);
});

test("CountsTheTestsOfEveryProcess", () => {
  const cases = ["a.0 run", "a.1 fail", "a.2 fail", "a.3 fail", "b run", "c notrun"].map(
    (words) => {
      const [name, status] = words.split(" ");
      return `<testcase name="${name}" classname="${name}" time="0.1" status="${status}">`;
    },
  );
  const ctest = file(`<?xml version="1.0"?>\n<testsuite name="x" tests="6">\n${cases.join("\n")}`);
  const reports = newFolder();
  const ran = { status: "RUN", result: "COMPLETED" };
  const write = (name, failures, tests) => {
    const report = { failures, disabled: 0, testsuites: [{ testsuite: tests }] };
    writeFileSync(join(reports, `${name}.json`), JSON.stringify(report));
  };
  write("a.0", 0, [ran, ran, { status: "RUN", result: "SKIPPED" }]);
  write("a.1", 1, [ran, ran]);
  write("a.2", 0, [ran]); // died after its tests
  assert.deepEqual(readCtest(ctest, reports), {
    passed: 2 + 1 + 1 + 1,
    failed: 1 + 1 + 1,
    skipped: 2,
  });
});

test("ReadsWhatCtestPrints", () => {
  const read = (line) =>
    readCtestText(`Test project\n\n${line}\n\nTotal Test time (real) = 2.5 sec`);
  assert.deepEqual(read("75% tests passed, 1 tests failed out of 4"), {
    passed: 3,
    failed: 1,
    skipped: 0,
  });
  assert.deepEqual(read("100% tests passed, 0 tests failed out of 4"), {
    passed: 4,
    failed: 0,
    skipped: 0,
  });
  assert.deepEqual(read("No tests were found!!!"), { passed: 0, failed: 1, skipped: 0 });
});

// Prints nothing that a runner of this test could take for its own counts.
const runner = (passed, status) => ({
  name: "runner",
  command: process.execPath,
  args: ["-e", `console.log(${passed}); process.exitCode = ${status};`],
  env: process.env,
  read: (output) => ({ passed: Number(output), failed: 0, skipped: 0 }),
  summary: /^passed/,
});

test("ARunnerThatRanNoTestFails", async () => {
  const tally = new Tally();
  await assert.rejects(tally.run(runner(0, 0)), /runner ran no test/);
  assert.deepEqual(tally.total, { passed: 0, failed: 1, skipped: 0 });
  await tally.run(runner(2, 0));
  await assert.rejects(tally.run(runner(3, 1)), /ended with status 1/);
  assert.deepEqual(tally.total, { passed: 5, failed: 2, skipped: 0 });
  assert.ok(ctest({ env: {} }, "native-tests").args.includes("--no-tests=error"));
});

test("AddsThemUpInOneLine", () => {
  const sum = add({ passed: 1, failed: 2, skipped: 3 }, { passed: 10, failed: 20, skipped: 30 });
  assert.equal(lineOf(sum), "11 passed, 22 failed, 33 skipped");
});

test("ComparesVersionsByNumber", () => {
  assert.ok(isAtLeast("3.1.69", "3.1.69"));
  assert.ok(isAtLeast("4.0", "3.1.69"));
  assert.ok(!isAtLeast("3.1.6", "3.1.69"));
  assert.ok(isAtLeast("3.25.1", "3.25"));
  assert.ok(!isAtLeast("3", "3.25"));
});
