// Reads what each test runner says of itself, for one line that adds them up.
import { readFileSync } from "node:fs";

// Counts are { passed, failed, skipped }.
export function add(a, b) {
  return {
    passed: a.passed + b.passed,
    failed: a.failed + b.failed,
    skipped: a.skipped + b.skipped,
  };
}

export const none = { passed: 0, failed: 0, skipped: 0 };

// ctest --output-junit
export function readJunit(file) {
  const suite = /<testsuite\b[^>]*>/.exec(readFileSync(file, "utf8"))[0];
  const count = (name) => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(suite)?.[1] ?? 0);
  const skipped = count("skipped") + count("disabled");
  return {
    passed: count("tests") - count("failures") - skipped,
    failed: count("failures"),
    skipped,
  };
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

// node --test, any of its text reporters.
export function readNodeTest(output) {
  const count = (name) => Number(new RegExp(`^\\S+ ${name} (\\d+)$`, "m").exec(output)?.[1] ?? 0);
  return {
    passed: count("pass"),
    failed: count("fail") + count("cancelled"),
    skipped: count("skipped") + count("todo"),
  };
}

export function lineOf({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}
