// Reads what each test runner says of itself, for one line that adds them up.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

// Counts are { passed, failed, skipped }.
export function add(a, b) {
  return {
    passed: a.passed + b.passed,
    failed: a.failed + b.failed,
    skipped: a.skipped + b.skipped,
  };
}

export const none = { passed: 0, failed: 0, skipped: 0 };

// --gtest_output=json of one process
export function readGoogleTest(file) {
  const { testsuites, failures, disabled } = JSON.parse(readFileSync(file, "utf8"));
  const tests = testsuites.flatMap(({ testsuite }) => testsuite);
  const skipped = tests.filter(({ result }) => result === "SKIPPED").length;
  const run = tests.filter(({ status }) => status === "RUN").length;
  return { passed: run - failures - skipped, failed: failures, skipped: skipped + disabled };
}

const CTEST_STATUS = { run: "passed", fail: "failed", notrun: "skipped", disabled: "skipped" };

// ctest --output-junit. A process of many GoogleTests counts as these, which it lists in `reports`; one
// that dies before it does, or after they passed, is a failure.
export function readCtest(file, reports) {
  const cases = [
    ...readFileSync(file, "utf8").matchAll(/<testcase name="([^"]*)"[^>]*status="(\w+)"/g),
  ];
  return cases.reduce((total, [, name, status]) => {
    const outcome = CTEST_STATUS[status] ?? "failed";
    const report = join(reports, `${name}.json`);
    if (!existsSync(report)) return add(total, { ...none, [outcome]: 1 });
    const counts = readGoogleTest(report);
    const died = outcome === "failed" && counts.failed === 0 ? 1 : 0;
    return add(total, { ...counts, failed: counts.failed + died });
  }, none);
}

// What ctest prints at its end, where no report of it was asked for.
export function readCtestText(output) {
  const [, failed, all] =
    /^\d+% tests passed, (\d+) tests? failed out of (\d+)/m.exec(output) ?? [];
  if (all === undefined) return { ...none, failed: 1 };
  return { passed: Number(all) - Number(failed), failed: Number(failed), skipped: 0 };
}

// vitest --reporter=json
export function readVitest(file) {
  const report = JSON.parse(readFileSync(file, "utf8"));
  return {
    passed: report.numPassedTests,
    failed: report.numFailedTests,
    skipped: report.numPendingTests + report.numTodoTests,
  };
}

// playwright --reporter=json; a flaky test passed in the end.
export function readPlaywright(file) {
  const { stats, errors } = JSON.parse(readFileSync(file, "utf8"));
  return {
    passed: stats.expected + stats.flaky,
    failed: stats.unexpected + errors.length,
    skipped: stats.skipped,
  };
}

// The tests of that report that took longest, a line each; a retry counts.
export function slowestOfPlaywright(file, count = 5) {
  const specsOf = ({ suites = [], specs = [] }) => [...specs, ...suites.flatMap(specsOf)];
  const timed = specsOf(JSON.parse(readFileSync(file, "utf8"))).map(({ file, title, tests }) => {
    const results = tests.flatMap((test) => test.results);
    return [results.reduce((sum, { duration }) => sum + duration, 0), `${file}: ${title}`];
  });
  const slowest = timed.toSorted(([a], [b]) => b - a).slice(0, count);
  return slowest.map(([duration, name]) => `slow, ${(duration / 1000).toFixed(1)} s: ${name}`);
}

// node --test, any of its text reporters.
export function readNodeTest(output) {
  const count = (name) => Number(new RegExp(`^\\S+ ${name} (\\d+)$`, "m").exec(output)?.[1] ?? 0);
  return {
    passed: count("pass"),
    failed: count("fail") + count("cancelled"),
    skipped: count("skipped") + count("todo"),
  };
}

// npm run test:engines: a line for each check, and for an engine that is not there.
export function readEngines(output) {
  const count = (mark) => [...output.matchAll(new RegExp(`^\\s*${mark}\\b`, "gm"))].length;
  return { passed: count("right"), failed: count("WRONG"), skipped: count("SKIPPED") };
}

export function lineOf({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}
