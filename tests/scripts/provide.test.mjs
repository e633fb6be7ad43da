// A tool is complete or absent, and one set-up runs at a time.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { withLock } from "../../scripts/setup/lock.mjs";
import { isProvided, provide } from "../../scripts/setup/provide.mjs";

const all = mkdtempSync(join(tmpdir(), "heed-provide-"));
after(() => rmSync(all, { recursive: true }));

const newFolder = () => mkdtempSync(join(all, "tools-"));

test("AFailedBuildLeavesNothingAndIsRepeated", async () => {
  const tool = join(newFolder(), "tool");
  const failing = provide(tool, () => Promise.reject(new Error("interrupted")));
  await assert.rejects(failing, /interrupted/);
  assert.ok(!existsSync(tool) && !isProvided(tool));
  await provide(tool, (partial) => writeFileSync(join(partial, "file"), "whole"));
  assert.ok(isProvided(tool));
  assert.equal(readFileSync(join(tool, "file"), "utf8"), "whole");
});

test("AFolderWithoutAStampIsBuiltAnew", async () => {
  const tool = join(newFolder(), "tool");
  mkdirSync(tool);
  writeFileSync(join(tool, "half"), "");
  await provide(tool, () => {});
  assert.ok(isProvided(tool) && !existsSync(join(tool, "half")));
});

test("ACompleteToolIsLeftAlone", async () => {
  const tool = join(newFolder(), "tool");
  await provide(tool, () => {});
  await provide(tool, () => assert.fail("built twice"));
});

test("TwoSetUpsRunOneAfterTheOther", async () => {
  const folder = newFolder();
  const events = [];
  const work = (name) => async () => {
    events.push(`${name} begins`);
    await sleep(50);
    events.push(`${name} ends`);
  };
  await Promise.all([withLock(folder, work("a")), withLock(folder, work("b"))]);
  const first = events[0][0];
  const second = first === "a" ? "b" : "a";
  const expected = [first, first, second, second].map(
    (name, i) => `${name} ${i % 2 ? "ends" : "begins"}`,
  );
  assert.deepEqual(events, expected);
});
