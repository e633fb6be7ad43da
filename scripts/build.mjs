// Builds what is named, everything without a name:
//   node scripts/build.mjs [native] [wasm] [package] [web]
import {
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { buildApi } from "./api.mjs";
import { buildCppApi, writeAbsence } from "./api_cpp.mjs";
import { markBuild } from "./build_id.mjs";
import { bundle } from "./bundle.mjs";
import { minifyGlue } from "./glue.mjs";
import { capture, run } from "./process.mjs";
import { setup } from "./setup.mjs";
import { main, step } from "./steps.mjs";
import { refuseSharedThreadLocals } from "./thread_locals.mjs";
import { root, toolchain } from "./toolchain.mjs";
import { removeUnread } from "./unread.mjs";

const inRoot = (tools) => ({ cwd: root, env: tools.env });

// Definitions that let CMake find what the set-up provided.
function cmakeDefinitions(tools) {
  const definitions = {
    CMAKE_CXX_COMPILER_LAUNCHER: tools.ccache,
    FETCHCONTENT_SOURCE_DIR_HIGHWAY: tools.highway,
    HEED_XSIMD_INCLUDE: tools.xsimd,
  };
  const set = Object.entries(definitions).filter(([, value]) => value);
  return set.map(([name, value]) => `-D${name}=${value}`);
}

// `preset` is one of CMakePresets.json; default: all targets.
export async function buildNative(tools, preset = "native-tests", targets = []) {
  await run("cmake", ["--preset", preset, ...cmakeDefinitions(tools)], inRoot(tools));
  const only = targets.flatMap((target) => ["--target", target]);
  await run("cmake", ["--build", "--preset", preset, ...only], inRoot(tools));
}

// Emscripten's environment with a wasm-opt that is not run again for what it has done: `folder` has links to the
// rest of Binaryen. Without Binaryen's place, or a shell, it is run as often as it is called.
function optimizingOnce(env, folder) {
  const binaryen = capture("em-config", ["BINARYEN_ROOT"], { env });
  if (!binaryen || process.platform === "win32") return env;
  const programs = join(binaryen, "bin");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, "bin"), { recursive: true });
  mkdirSync(join(folder, "kept"));
  for (const name of readdirSync(programs).filter((name) => name !== "wasm-opt")) {
    symlinkSync(join(programs, name), join(folder, "bin", name));
  }
  const once = join(root, "scripts/wasm_opt_once.mjs");
  const words = [process.execPath, once, join(programs, "wasm-opt"), join(folder, "kept")];
  const line = words.map((word) => `'${word}'`).join(" ");
  writeFileSync(join(folder, "bin/wasm-opt"), `#!/bin/sh\nexec ${line} "$@"\n`, { mode: 0o755 });
  return { ...env, EM_BINARYEN_ROOT: folder };
}

export async function buildWasm(tools) {
  const configure = ["cmake", "--preset", "wasm", ...cmakeDefinitions(tools)];
  await run("emcmake", configure, inRoot(tools));
  const binaryen = join(root, "build/wasm/binaryen");
  const env = optimizingOnce(tools.env, binaryen);
  await run("cmake", ["--build", "--preset", "wasm"], { cwd: root, env });
  rmSync(binaryen, { recursive: true, force: true });
  refuseSharedThreadLocals(join(root, "build/wasm"), inRoot(tools));
}

// What heed/inline holds: a module as text, and glue that names no file: bundlers would ship it.
function writeInline(folder) {
  const packed = gzipSync(readFileSync(join(folder, "heed-simd.wasm")), { level: 9 });
  const text = JSON.stringify(packed.toString("base64"));
  writeFileSync(join(folder, "heed-simd.bytes.js"), `export default ${text};\n`);
  const glue = readFileSync(join(folder, "heed-simd.mjs"), "utf8");
  const address = /new URL\([`"']heed-simd\.wasm[`"'],\s*import\.meta\.url\)\.href/;
  if (!address.test(glue)) throw new Error("heed-simd.mjs: the address of its file was not found");
  writeFileSync(join(folder, "heed-simd.inline.mjs"), glue.replace(address, '""'));
}

// dist/: the compiled TypeScript with the WASM modules beside it.
export async function buildPackage(tools) {
  const dist = join(root, "dist");
  rmSync(dist, { recursive: true, force: true });
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  await run(process.execPath, [tsc, "-p", "bindings/tsconfig.json"], inRoot(tools));
  mkdirSync(join(dist, "wasm"), { recursive: true });
  for (const name of readdirSync(join(root, "build/wasm"))) {
    if (!/^heed-.*\.(mjs|wasm|d\.mts)$/.test(name)) continue;
    const from = join(root, "build/wasm", name);
    const to = join(dist, "wasm", name);
    if (name.endsWith(".mjs")) await minifyGlue(from, to);
    else cpSync(from, to);
  }
  markBuild(join(dist, "wasm"));
  await bundle(dist);
  writeInline(join(dist, "wasm"));
  removeUnread(dist, JSON.parse(readFileSync(join(root, "package.json"), "utf8")).exports);
}

export const siteFolder = join(root, "build/web");

export async function buildWeb(tools) {
  const vite = join(root, "node_modules/vite/bin/vite.js");
  const output = ["--outDir", siteFolder, "--emptyOutDir"];
  const build = [vite, "build", "--config", "web/vite.config.ts", ...output];
  await run(process.execPath, build, inRoot(tools));
  for (const name of ["LICENSE", "NOTICE"]) cpSync(join(root, name), join(siteFolder, name));
  await buildApi(tools, join(siteFolder, "api"));
  try {
    await buildCppApi(tools, join(siteFolder, "api-cpp"));
  } catch (error) {
    // Other releases of Doxygen warn of other things; a test says so, and the site does without.
    console.error(`the C++ API reference is skipped: ${error.message}`);
    writeAbsence(join(siteFolder, "api-cpp"));
  }
}

const parts = {
  native: { title: "Build natively", build: buildNative },
  wasm: { title: "Build WASM", build: buildWasm },
  package: { title: "Build the npm package", build: buildPackage },
  web: { title: "Build the demo page", build: buildWeb },
};

export async function build(names, tools) {
  for (const name of names) {
    const { title, build: work } = parts[name];
    await step(title, () => work(tools));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const names = process.argv.slice(2);
  const unknown = names.filter((name) => !(name in parts));
  await main(async () => {
    if (unknown.length) {
      throw new Error(`no part "${unknown[0]}"; parts: ${Object.keys(parts).join(", ")}`);
    }
    await setup();
    await build(names.length ? names : Object.keys(parts), toolchain());
  });
}
