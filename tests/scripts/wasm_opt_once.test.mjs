// scripts/wasm_opt_once.mjs: what a program has made of its arguments it is not asked for again.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";

const script = fileURLToPath(new URL("../../scripts/wasm_opt_once.mjs", import.meta.url));
const folders = [];
let folder;

// Writes its arguments but for names and what it read, says so, and notes that it ran.
const PROGRAM = `#!/bin/sh
echo ran >> log
[ "$1" = --fail ] && exit 3
{ echo "$1"; cat "$2"; } > "$4"
echo "said $1"
`;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heed-once-"));
  folders.push(folder);
  writeFileSync(join(folder, "program"), PROGRAM);
  chmodSync(join(folder, "program"), 0o755);
  writeFileSync(join(folder, "log"), "");
  writeFileSync(join(folder, "a.wasm"), "module\n");
  writeFileSync(join(folder, "b.wasm"), "module\n");
});
after(() => {
  for (const made of folders) rmSync(made, { recursive: true });
});

const call = (...args) =>
  spawnSync(process.execPath, [script, "./program", folder, ...args], {
    cwd: folder,
    encoding: "utf8",
  });
const runs = () => readFileSync(join(folder, "log"), "utf8").split("\n").length - 1;
const read = (name) => readFileSync(join(folder, name), "utf8");

test("the same input and arguments are not run again, whatever the files are called", () => {
  const first = call("-O2", "a.wasm", "-o", "a.out");
  const second = call("-O2", "b.wasm", "-o", "b.out");
  assert.equal(runs(), 1);
  assert.deepEqual([first.status, first.stdout], [0, "said -O2\n"]);
  assert.deepEqual([second.status, second.stdout], [0, "said -O2\n"]);
  assert.equal(read("b.out"), "-O2\nmodule\n");
});

test("a file may be replaced in place", () => {
  call("-O2", "a.wasm", "-o", "a.wasm");
  call("-O2", "b.wasm", "-o", "b.wasm");
  assert.equal(runs(), 1);
  assert.equal(read("a.wasm"), read("b.wasm"));
});

test("other arguments and other input are run", () => {
  call("-O2", "a.wasm", "-o", "a.out");
  call("-Oz", "a.wasm", "-o", "a.out");
  writeFileSync(join(folder, "b.wasm"), "another\n");
  call("-O2", "b.wasm", "-o", "b.out");
  assert.equal(runs(), 3);
  assert.equal(read("b.out"), "-O2\nanother\n");
});

test("a failure is passed on, and not kept", () => {
  assert.equal(call("--fail", "a.wasm", "-o", "a.out").status, 3);
  assert.equal(call("--fail", "a.wasm", "-o", "a.out").status, 3);
  assert.equal(runs(), 2);
});

test("what names no input and output, or writes more files, is run as it is", () => {
  for (let n = 0; n < 2; ++n) {
    assert.equal(call("--version").stdout, "said --version\n");
    call("--symbolmap=x", "a.wasm", "-o", "a.out");
  }
  assert.equal(runs(), 4);
});
