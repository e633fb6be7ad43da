// Provides every tool that heed is built and tested with; quick when all is there.
//   node scripts/setup.mjs
import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { run, which } from "./process.mjs";
import { withLock } from "./setup/lock.mjs";
import { privateApt } from "./setup/private_apt.mjs";
import { provide } from "./setup/provide.mjs";
import { provideRuntimes } from "./setup/runtimes.mjs";
import { debian, installPackages, isRoot, provideSystem } from "./setup/system.mjs";
import { unpackEmscripten, unpackHighway, unpackNode24, unpackXsimd } from "./setup/unpacked.mjs";
import { cacheFolder, minimumEmscripten, root, toolchain, toolFolders } from "./toolchain.mjs";

// The Debian suite that carries Highway 1.2, xsimd 13 and Emscripten 3.1.69, and the LLVM that this
// Emscripten drives.
const debianSuite = "trixie";
const llvmFolder = "/usr/lib/llvm-19/bin";

function report(name, state, detail) {
  console.log(`  ${name.padEnd(17)} ${state.padEnd(10)} ${detail}`);
}

// apt-get on the private state, made on first use: its `update` takes seconds.
function lazyApt() {
  let apt;
  return async (...args) => {
    apt ??= privateApt(join(cacheFolder, "apt"), debian().codename, debianSuite);
    return (await apt)(...args);
  };
}

async function provideSources(aptGet) {
  const rows = [
    ["Highway", toolFolders.highway, unpackHighway, () => toolchain().highway],
    ["xsimd", toolFolders.xsimd, unpackXsimd, () => toolchain().xsimd],
  ];
  for (const [name, folder, unpack, path] of rows) {
    const before = path();
    if (!before && debian()) await provide(folder, (partial) => unpack(aptGet, partial));
    const state = before ? "found" : path() ? "installed" : "missing";
    report(name, state, path() ?? "CMake downloads it");
  }
}

async function provideEmscripten(aptGet) {
  const before = toolchain();
  if (!before.emcc && debian()) {
    const needed = [
      [`${llvmFolder}/clang`, "clang-19"],
      [`${llvmFolder}/wasm-ld`, "lld-19"],
      [`${llvmFolder}/llvm-ar`, "llvm-19"],
      [which("patchelf") ?? "patchelf", "patchelf"],
      [which("python3") ?? "python3", "python3"],
    ];
    const packages = needed.filter(([path]) => !existsSync(path)).map(([, name]) => name);
    if (packages.length && !isRoot) {
      throw new Error(`Emscripten needs: apt-get install ${packages.join(" ")} (as root)`);
    }
    if (packages.length) await installPackages(packages);
    const home = toolFolders.emscripten;
    await provide(home, (partial) => unpackEmscripten(aptGet, partial, { home, llvm: llvmFolder }));
  }
  const { emcc, version } = toolchain();
  if (!emcc) {
    report(
      "Emscripten",
      "missing",
      `install emsdk ${minimumEmscripten} or newer, emcc on the PATH`,
    );
    throw new Error("needed and not here: Emscripten");
  }
  report("Emscripten", before.emcc ? "found" : "installed", `${emcc} ${version}`);
}

async function provideModules() {
  const lock = join(root, "package-lock.json");
  const installed = join(root, "node_modules/.package-lock.json");
  const current = existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs;
  if (!current)
    await run("npm", ["ci", "--ignore-scripts", "--prefer-offline"], { cwd: root, quiet: true });
  report("npm modules", current ? "found" : "installed", "node_modules");
}

async function provideNode24() {
  const before = toolchain().node24;
  if (!before && process.platform === "linux") {
    await provide(toolFolders.node24, (partial) => unpackNode24(partial, "24.21.0"));
  }
  const { node24 } = toolchain();
  const state = before ? "found" : node24 ? "installed" : "missing";
  report("Node 22+", state, node24 ?? "without it relaxed SIMD is tested in the browser only");
}

// `runtimes`: also what only tests need.
export async function setup({ runtimes = false } = {}) {
  console.log(`setup: tools in ${cacheFolder}`);
  await withLock(cacheFolder, async () => {
    await provideSystem(report);
    const aptGet = lazyApt();
    await provideSources(aptGet);
    await provideEmscripten(aptGet);
    await provideNode24();
    if (runtimes) await provideRuntimes(report);
    await provideModules();
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await setup({ runtimes: true });
  } catch (error) {
    console.error(`setup: ${error.message}`);
    process.exitCode = 1;
  }
}
