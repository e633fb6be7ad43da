// Tools unpacked into the cache folder because the system's own are missing or too old: Highway's
// sources, xsimd's headers, Emscripten. Each is one function that fills a folder for provide().
import { chmodSync, copyFileSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { run } from "../process.mjs";

function find(folder, pattern) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory() && pattern.test(entry.name))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}

// `excluded` are tar patterns; leaving files out of the stream is much quicker than deleting them.
async function unpackPackages(aptGet, folder, packages, excluded = []) {
  const downloads = join(folder, "download");
  mkdirSync(downloads, { recursive: true });
  await aptGet(["download", ...packages], downloads);
  for (const file of find(downloads, /\.deb$/)) {
    const script = 'set -o pipefail; deb=$1; shift; dpkg --fsys-tarfile "$deb" | tar -x "$@"';
    const options = ["-C", folder, ...excluded.map((pattern) => `--exclude=${pattern}`)];
    await run("bash", ["-c", script, "unpack", file, ...options], { quiet: true });
  }
  rmSync(downloads, { recursive: true });
}

export async function installModules(folder, packages) {
  writeFileSync(join(folder, "package.json"), `{ "private": true }\n`);
  const options = [
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--loglevel=error",
    "--fetch-retries=1",
  ];
  await run("npm", ["install", ...options, ...packages], { cwd: folder, quiet: true });
}

export async function unpackHighway(aptGet, folder) {
  const downloads = join(folder, "download");
  mkdirSync(downloads);
  await aptGet(["source", "--download-only", "highway"], downloads);
  const [tarball] = find(downloads, /^highway_.*\.orig\.tar\./);
  await run("tar", ["-xf", tarball, "-C", folder, "--strip-components=1"], { quiet: true });
  rmSync(downloads, { recursive: true });
}

export function unpackXsimd(aptGet, folder) {
  return unpackPackages(aptGet, folder, ["libxsimd-dev", "xtl-dev"]);
}

// Of 1.6 GB nearly all is variants of system libraries that heed never links.
const unusedInEmscripten = [
  ...["lto", "lto-pic", "pic", "libwasmfs*", "*asan*", "*sanitizer*", "*-ww*"].map(
    (name) => `./usr/share/emscripten/cache/sysroot/lib/wasm32-emscripten/${name}`,
  ),
  "./usr/share/emscripten/test",
  "./usr/share/doc",
];

// Emscripten itself is architecture-independent. Binaryen's programs are not: they want the libc of
// their own suite, which travels along and is named inside copies of them. `home` is where `folder`
// will be in the end.
export async function unpackEmscripten(aptGet, folder, { home, llvm }) {
  const libraries = ["libc6", "libstdc++6", "libgcc-s1"];
  const packages = ["emscripten", "binaryen", ...libraries];
  await unpackPackages(aptGet, folder, packages, unusedInEmscripten);

  const [loader] = find(folder, /^ld-linux.*\.so\.\d+$/);
  const binaries = find(folder, /^lib(c|stdc\+\+|gcc_s|binaryen)\.so/);
  const rpath = [...new Set(binaries.map((file) => dirname(file).replace(folder, home)))].join(":");
  const programs = join(folder, "binaryen/bin");
  mkdirSync(programs, { recursive: true });
  for (const program of find(join(folder, "usr/bin"), /^(wasm-|binaryen-)/)) {
    const copy = join(programs, basename(program));
    copyFileSync(program, copy);
    chmodSync(copy, 0o755);
    const interpreter = loader.replace(folder, home);
    await run("patchelf", ["--set-interpreter", interpreter, "--set-rpath", rpath, copy]);
  }
  // Its optimiser imports acorn, which Node looks for in the folders above the importing file; its
  // --emit-tsd calls tsc with options that TypeScript 6 refuses.
  await installModules(folder, ["acorn@8.15.0", "typescript@5.9.3"]);
  const config = [
    `LLVM_ROOT = '${llvm}'`,
    `BINARYEN_ROOT = '${join(home, "binaryen")}'`,
    "NODE_JS = 'node'",
    "FROZEN_CACHE = True",
  ];
  writeFileSync(join(folder, "emscripten.config"), `${config.join("\n")}\n`);
}

// Node's own binary as an npm package of one platform. Not a development dependency: npm would
// refuse the whole installation on every other platform.
export async function unpackNode24(folder, version) {
  await installModules(folder, [`node-${process.platform}-${process.arch}@${version}`]);
}
