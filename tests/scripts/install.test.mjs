// What CMake writes for those who use an installed heed, and says to those who build it.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { root, toolchain } from "../../scripts/toolchain.mjs";

/** Runs a script of CMake with `definitions`; what it printed, on either stream. */
function runScript(script, definitions) {
  const words = definitions.map((definition) => `-D${definition}`);
  const options = { encoding: "utf8", env: toolchain().env };
  const { status, stdout, stderr } = spawnSync("cmake", [...words, "-P", script], options);
  assert.equal(status, 0, stderr);
  return stdout + stderr;
}

function inFolder(work) {
  const folder = mkdtempSync(join(tmpdir(), "heed-install-"));
  try {
    return work(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The variables of heed.pc where heed is installed to these folders. */
const variables = (...folders) =>
  inFolder((folder) => {
    const script = join(folder, "write.cmake");
    writeFileSync(
      script,
      `include(${root}/cmake/HeedPkgConfig.cmake)\nheed_write_pc_files(${folder})\n`,
    );
    runScript(script, ["CMAKE_INSTALL_PREFIX=/usr/local", ...folders]);
    const text = readFileSync(join(folder, "heed.pc"), "utf8");
    const training = readFileSync(join(folder, "heed-training.pc"), "utf8");
    const of = (page) =>
      Object.fromEntries(page.match(/^\w+=.*$/gm).map((line) => line.split("=")));
    assert.equal(of(training).libdir, of(text).libdir);
    return of(text);
  });

test("InstalledFoldersMoveWithTheirPrefix", () => {
  const { prefix, libdir, includedir } = variables(
    "CMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu",
    "CMAKE_INSTALL_INCLUDEDIR=include",
  );
  assert.equal(
    join("/p/lib/x86_64-linux-gnu/pkgconfig", prefix.replace(`\${pcfiledir}`, "")),
    "/p",
  );
  assert.equal(libdir, `\${prefix}/lib/x86_64-linux-gnu`);
  assert.equal(includedir, `\${prefix}/include`);
});

test("AbsoluteFoldersStayAsTheyAre", () => {
  const { prefix, libdir, includedir } = variables(
    "CMAKE_INSTALL_LIBDIR=/opt/x/lib",
    "CMAKE_INSTALL_INCLUDEDIR=/opt/y/include",
  );
  assert.deepEqual([prefix, libdir, includedir], ["/usr/local", "/opt/x/lib", "/opt/y/include"]);
});

test("AProjectIsToldThatItBuildsHeedWithoutOptimisation", () => {
  const script = join(root, "cmake/HeedBuildType.cmake");
  assert.match(runScript(script, ["PROJECT_IS_TOP_LEVEL=OFF"]), /without optimisation/);
  for (const chosen of [
    "PROJECT_IS_TOP_LEVEL=ON",
    "CMAKE_BUILD_TYPE=Debug",
    "CMAKE_CONFIGURATION_TYPES=Debug;Release",
    "CMAKE_CXX_FLAGS=-g -O2",
  ]) {
    assert.equal(runScript(script, [chosen]), "", chosen);
  }
});

test("AnOlderStandardIsToldInOneSentence", () => {
  for (const header of ["heed.h", "error.h", "thread_pool.h"]) {
    const source = `#include <heed/${header}>\n`;
    const words = ["-x", "c++", "-std=c++17", "-E", "-I", join(root, "cpp/include"), "-"];
    const options = { input: source, encoding: "utf8", env: toolchain().env };
    const { status, stderr } = spawnSync(process.env.CXX ?? "c++", words, options);
    assert.notEqual(status, 0, header);
    assert.match(stderr, /heed needs C\+\+20/, header);
  }
});
