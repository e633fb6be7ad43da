// What is built, in which order, and what is left when it fails.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { readParts, refuseMissing, replaceFolder, wasmOptOnce } from "../../scripts/build.mjs";
import { promised, refuseIncomplete } from "../../scripts/prepack.mjs";
import { which } from "../../scripts/process.mjs";
import { cacheFolderOf, root } from "../../scripts/toolchain.mjs";

const all = mkdtempSync(join(tmpdir(), "heed-build-"));
after(() => rmSync(all, { recursive: true }));

const newFolder = () => mkdtempSync(join(all, "root-"));

function write(folder, path, text = "") {
  mkdirSync(join(folder, path, ".."), { recursive: true });
  writeFileSync(join(folder, path), text);
}

test("PartsAreBuiltBeforeThoseThatNeedThem", () => {
  assert.deepEqual(readParts(["web", "package", "wasm"]), ["wasm", "package", "web"]);
  assert.deepEqual(readParts([]), ["native", "wasm", "package", "web"]);
});

test("APartIsNotBuiltWithoutWhatItNeeds", () => {
  const folder = newFolder();
  const refuse = (...names) => refuseMissing(names, folder);
  assert.throws(() => refuse("package"), {
    message:
      "package needs build/wasm/heed-simd.wasm, which is not there: npm run build -- wasm package",
  });
  assert.throws(() => refuse("web"), /needs dist\/index\.js.*: npm run build -- wasm package web$/);
  refuse("wasm", "package", "web");
  refuse("native");
  write(folder, "build/wasm/heed-simd.wasm");
  refuse("package");
  assert.throws(() => refuse("web"), /: npm run build -- package web$/);
  write(folder, "dist/index.js");
  refuse("web");
});

test("AFolderIsReplacedWhenItsNewOneIsWhole", async () => {
  const [folder, aside] = ["dist", "aside"].map((name) => join(newFolder(), name));
  write(folder, "old");
  const failing = replaceFolder(folder, aside, (partial) => {
    write(partial, "half");
    throw new Error("interrupted");
  });
  await assert.rejects(failing, /interrupted/);
  assert.ok(existsSync(join(folder, "old")));
  await replaceFolder(folder, aside, (partial) => {
    assert.ok(!existsSync(join(partial, "half")));
    write(partial, "new");
  });
  assert.ok(existsSync(join(folder, "new")) && !existsSync(join(folder, "old")));
  assert.ok(!existsSync(aside));
});

test("WasmOptIsFoundUnderAnyPath", () => {
  const folder = join(newFolder(), "it's $HOME");
  write(folder, "wasm-opt", '#!/bin/sh\necho "said $1"\n');
  execFileSync("chmod", ["+x", join(folder, "wasm-opt")]);
  mkdirSync(join(folder, "kept"));
  write(folder, "a.wasm", "module");
  write(folder, "once", wasmOptOnce(folder, folder));
  const said = execFileSync("sh", [join(folder, "once"), "it's", "a.wasm"], { cwd: folder });
  assert.equal(said.toString(), "said it's\n");
});

test("APackageWithoutWhatItPromisesIsNotPacked", () => {
  const folder = newFolder();
  cpSync(join(root, "package.json"), join(folder, "package.json"));
  const lacks =
    /^the package lacks dist\/.* and \d+ other files; .*: npm run build -- wasm package$/;
  assert.throws(() => refuseIncomplete(folder), { message: lacks });
  const files = promised(JSON.parse(readFileSync(join(root, "package.json"), "utf8")));
  for (const path of [
    ...["node.js", "browser_core.js", "inline.js", "worker_script.d.ts"].map((n) => `dist/${n}`),
    ...["simd.wasm", "relaxed-threads.node.mjs", "simd.bytes.js"].map((n) => `dist/wasm/heed-${n}`),
  ]) {
    assert.ok(files.includes(path), path);
  }
  for (const path of files.filter((path) => path.startsWith("dist/"))) write(folder, path);
  refuseIncomplete(folder);
  rmSync(join(folder, "dist/wasm/heed-training-simd.wasm"));
  assert.throws(() => refuseIncomplete(folder), /lacks dist\/wasm\/heed-training-simd\.wasm; /);
  const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  assert.equal(scripts.prepack, "node scripts/prepack.mjs");
});

test("TheCacheFolderIsTheSameInEveryFolder", () => {
  const usual = join(homedir(), ".cache/heed/toolchain");
  assert.equal(cacheFolderOf({}), usual);
  assert.equal(cacheFolderOf({ HEED_TOOLCHAIN: "", XDG_CACHE_HOME: "" }), usual);
  assert.equal(cacheFolderOf({ XDG_CACHE_HOME: "relative" }), usual);
  assert.equal(cacheFolderOf({ XDG_CACHE_HOME: "/caches" }), "/caches/heed/toolchain");
  assert.equal(cacheFolderOf({ HEED_TOOLCHAIN: "/t", XDG_CACHE_HOME: "/caches" }), "/t");
  assert.equal(cacheFolderOf({ HEED_TOOLCHAIN: "tools" }), join(root, "tools"));
});

// Where HeedHighway.cmake finds Highway with these variables, in a project in `folder`.
function highwayOf(folder, variables) {
  const env = { ...process.env, HOME: join(folder, "home"), ...variables };
  for (const name of ["HEED_TOOLCHAIN", "XDG_CACHE_HOME"]) {
    if (variables[name] === undefined) delete env[name];
  }
  const binary = join(folder, "build");
  rmSync(binary, { recursive: true, force: true });
  const options = { env, encoding: "utf8", cwd: binary };
  mkdirSync(binary);
  return /^-- highway: (.*)$/m.exec(
    execFileSync("cmake", ["-S", folder, "-B", binary], options),
  )?.[1];
}

test("CMakeLooksInTheSameCacheFolder", { skip: !which("cmake") && "no cmake" }, () => {
  const folder = newFolder();
  write(
    folder,
    "CMakeLists.txt",
    `cmake_minimum_required(VERSION 3.25)
project(finder NONE)
set(EMSCRIPTEN TRUE)
set(FETCHCONTENT_FULLY_DISCONNECTED ON)
include("${join(root, "cmake/HeedHighway.cmake")}")
message(STATUS "highway: \${FETCHCONTENT_SOURCE_DIR_HIGHWAY}")\n`,
  );
  const places = {
    usual: "home/.cache/heed/toolchain",
    caches: "caches/heed/toolchain",
    tools: "tools",
  };
  for (const place of Object.values(places)) write(folder, `${place}/highway-1.2.0/hwy/highway.h`);
  const cases = [
    [{}, places.usual],
    [{ HEED_TOOLCHAIN: "", XDG_CACHE_HOME: "" }, places.usual],
    [{ XDG_CACHE_HOME: "caches" }, places.usual],
    [{ XDG_CACHE_HOME: join(folder, "caches") }, places.caches],
    [{ HEED_TOOLCHAIN: "tools" }, places.tools],
  ];
  for (const [variables, place] of cases) {
    const wanted = join(folder, place, "highway-1.2.0");
    assert.equal(highwayOf(folder, variables), wanted, JSON.stringify(variables));
  }
});
