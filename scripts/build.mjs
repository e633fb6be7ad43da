// Builds what is named, everything without a name; parts that others need come first, however they are typed:
//   npm run build -- [native] [wasm] [package] [web]
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import { buildApi } from "./api.mjs";
import { buildCppApi, writeAbsence } from "./api_cpp.mjs";
import { markBuild } from "./build_id.mjs";
import { bundle } from "./bundle.mjs";
import { commandLine, refuseUnknown } from "./command_line.mjs";
import { minifyGlue } from "./glue.mjs";
import { capture, quoted, run } from "./process.mjs";
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

// A script that calls wasm-opt of `programs` by way of wasm_opt_once.mjs.
export function wasmOptOnce(programs, folder) {
  const once = join(root, "scripts/wasm_opt_once.mjs");
  const words = [process.execPath, once, join(programs, "wasm-opt"), join(folder, "kept")];
  return `#!/bin/sh\nexec ${words.map(quoted).join(" ")} "$@"\n`;
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
  writeFileSync(join(folder, "bin/wasm-opt"), wasmOptOnce(programs, folder), { mode: 0o755 });
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

// Fills the folder `partial` and puts it in place of `folder` when it is whole: what fails, leaves what was there.
export async function replaceFolder(folder, partial, fill) {
  rmSync(partial, { recursive: true, force: true });
  await fill(partial);
  rmSync(folder, { recursive: true, force: true });
  renameSync(partial, folder);
}

// dist/: the compiled TypeScript with the WASM modules beside it.
export async function buildPackage(tools) {
  refuseMissing(["package"]);
  const aside = join(root, "build/package");
  mkdirSync(aside, { recursive: true });
  // Its "sideEffects" tell the bundler which files of the folder beside it count.
  cpSync(join(root, "package.json"), join(aside, "package.json"));
  await replaceFolder(join(root, "dist"), join(aside, "dist"), (dist) => fillPackage(tools, dist));
}

async function fillPackage(tools, dist) {
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const compile = [tsc, "-p", "bindings/tsconfig.json", "--outDir", dist];
  await run(process.execPath, compile, inRoot(tools));
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
  refuseMissing(["web"]);
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

// In the order in which they are built. `needs` is a part, and the file that tells that it is there.
const parts = {
  native: { title: "Build natively", build: buildNative },
  wasm: { title: "Build WASM", build: buildWasm },
  package: {
    title: "Build the npm package",
    build: buildPackage,
    needs: { part: "wasm", file: "build/wasm/heed-simd.wasm" },
  },
  web: {
    title: "Build the demo page",
    build: buildWeb,
    needs: { part: "package", file: "dist/index.js" },
  },
};

const inOrder = (names) => Object.keys(parts).filter((name) => names.includes(name));

// `names` and the parts that they need, where these are not there.
function withMissing(names, folder) {
  const { needs } = parts[inOrder(names)[0]];
  const isThere = !needs || existsSync(join(folder, needs.file));
  return isThere ? names : withMissing([needs.part, ...names], folder);
}

// Throws, with the command that builds it too, where a part needs another that is neither named nor there.
export function refuseMissing(names, folder = root) {
  for (const name of inOrder(names)) {
    const { needs } = parts[name];
    if (!needs || names.includes(needs.part) || existsSync(join(folder, needs.file))) continue;
    const all = inOrder([...names, ...withMissing([name], folder)]).join(" ");
    throw new Error(`${name} needs ${needs.file}, which is not there: npm run build -- ${all}`);
  }
}

// The parts that a command line names, in the order in which they are built.
export function readParts(args) {
  const { positionals } = parseArgs({ args, allowPositionals: true });
  refuseUnknown("part", positionals, Object.keys(parts));
  const names = positionals.length ? inOrder(positionals) : Object.keys(parts);
  refuseMissing(names);
  return names;
}

export async function build(names, tools) {
  for (const name of inOrder(names)) {
    const { title, build: work } = parts[name];
    await step(title, () => work(tools));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const names = await commandLine(import.meta.url, readParts);
  await main(async () => {
    await setup();
    await build(names, toolchain());
  });
}
