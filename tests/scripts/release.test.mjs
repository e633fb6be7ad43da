// What has to be right before anything is released.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { changesOf, checkLog, mayFollow, treeVersion } from "../../scripts/release.mjs";
import { compare } from "../../scripts/reproduce.mjs";

test("TheVersionIsTheSameEverywhere", () => {
  assert.match(treeVersion(), /^\d+\.\d+\.\d+$/);
});

test("AVersionFollowsTheLastOneByOneStep", () => {
  for (const next of ["0.1.1", "0.2.0", "1.0.0"]) assert.ok(mayFollow("0.1.0", next), next);
  for (const next of ["0.1.0", "0.1.2", "0.3.0", "0.2.1", "2.0.0", "0.0.9"]) {
    assert.ok(!mayFollow("0.1.0", next), next);
  }
});

const log = `# Changelog

## Unreleased

## 0.2.0 (2027-01-31)

- Faster.

## 0.1.0 (2026-12-01)

- First.
`;

test("TheSectionOfAVersionIsFound", () => {
  assert.deepEqual(changesOf(log, "0.2.0"), { heading: "0.2.0 (2027-01-31)", text: "- Faster." });
  assert.equal(changesOf(log, "0.1")?.text, undefined);
  assert.equal(changesOf(log, "Unreleased"), null);
});

test("AReleaseNeedsADatedSectionAndNothingUnreleased", () => {
  assert.equal(checkLog(log, "0.2.0").text, "- Faster.");
  assert.throws(() => checkLog(log, "0.3.0"), /has no "## 0\.3\.0/);
  assert.throws(() => checkLog(log.replace(" (2027-01-31)", ""), "0.2.0"), /no date/);
  const pending = log.replace("## Unreleased\n", "## Unreleased\n\n- More.\n");
  assert.throws(() => checkLog(pending, "0.2.0"), /under Unreleased/);
});

test("AModuleThatIsBuiltDifferentlyElsewhereIsRefused", () => {
  const folder = mkdtempSync(join(tmpdir(), "heed-compare-"));
  const [here, there] = ["here", "there"].map((name) => join(folder, name));
  try {
    for (const at of [here, there]) {
      mkdirSync(at);
      writeFileSync(join(at, "a.wasm"), "the same");
      writeFileSync(join(at, "b.wasm"), at);
    }
    assert.match(compare(here, there, ["a"])[0], /^[0-9a-f]{64} {2}a\.wasm$/);
    assert.throws(() => compare(here, there), /b\.wasm: .* here, .* built elsewhere/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
