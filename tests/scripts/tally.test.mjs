// The last line of npm test adds up what the runners say of themselves.
import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { isAtLeast } from "../../scripts/process.mjs";
import {
  add,
  lineOf,
  readJunit,
  readNodeTest,
  readPlaywright,
  readVitest,
} from "../../scripts/tally.mjs";

function file(text) {
  const path = join(mkdtempSync(join(tmpdir(), "heed-tally-")), "report");
  writeFileSync(path, text);
  return path;
}

test("ReadsEveryRunner", () => {
  const junit = file(
    '<?xml version="1.0"?>\n<testsuite name="x" tests="9" failures="1" disabled="0" skipped="2" time="3">',
  );
  assert.deepEqual(readJunit(junit), { passed: 6, failed: 1, skipped: 2 });
  const vitest = { numPassedTests: 5, numFailedTests: 1, numPendingTests: 2, numTodoTests: 1 };
  assert.deepEqual(readVitest(file(JSON.stringify(vitest))), { passed: 5, failed: 1, skipped: 3 });
  const playwright = { stats: { expected: 4, flaky: 1, unexpected: 2, skipped: 3 }, errors: [] };
  const counts = readPlaywright(file(JSON.stringify(playwright)));
  assert.deepEqual(counts, { passed: 5, failed: 2, skipped: 3 });
  const tap = "# tests 7\n# pass 4\n# fail 1\n# cancelled 0\n# skipped 1\n# todo 1\n";
  assert.deepEqual(readNodeTest(tap), { passed: 4, failed: 1, skipped: 2 });
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
