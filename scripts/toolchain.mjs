// Where every tool is, and the environment that makes cmake, emcc and npm programs use it.
//   import { toolchain } from "./toolchain.mjs"
//   eval "$(node scripts/toolchain.mjs --print)"      # the same for a shell
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, dirname, isAbsolute, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { capture, isAtLeast, quoted, which } from "./process.mjs";
import { isProvided } from "./setup/provide.mjs";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
export const minimumEmscripten = "3.1.69";

// Shared by all clones of one user. An empty variable counts as unset, and so does a relative $XDG_CACHE_HOME, as
// the XDG base directory specification has it; a relative $HEED_TOOLCHAIN lies in the root.
export function cacheFolderOf({ HEED_TOOLCHAIN, XDG_CACHE_HOME = "" }) {
  const caches = isAbsolute(XDG_CACHE_HOME) ? XDG_CACHE_HOME : join(homedir(), ".cache");
  return resolve(root, HEED_TOOLCHAIN || join(caches, "heed", "toolchain"));
}

export const cacheFolder = cacheFolderOf(process.env);

const { platform, arch } = process;
const isKnown = ["linux", "darwin"].includes(platform) && ["x64", "arm64"].includes(arch);

// Programs of other JavaScript runtimes, as npm packages of one platform each.
export const runtimes = [
  {
    name: "Bun",
    key: "bun",
    version: "1.4.5",
    package: `@oven/bun-${platform}-${arch === "arm64" ? "aarch64" : arch}`,
    program: "bin/bun",
  },
  {
    name: "Deno",
    key: "deno",
    version: "2.9.5",
    package: `@deno/${platform}-${arch}${platform === "linux" ? "-glibc" : ""}`,
    program: "deno",
  },
  {
    name: "workerd",
    key: "workerd",
    version: "1.20261023.1",
    package: `@cloudflare/workerd-${platform}-${arch === "x64" ? "64" : arch}`,
    program: "bin/workerd",
  },
].map((runtime) => (isKnown ? runtime : { ...runtime, package: null }));

export const nextFixture = join(root, "bindings/fixtures/next");

function lockHash() {
  const lock = readFileSync(join(nextFixture, "package-lock.json"));
  return createHash("sha256").update(lock).digest("hex").slice(0, 12);
}

// The folder names carry a version: a change of recipe is a change of name.
export const toolFolders = {
  highway: join(cacheFolder, "highway-1.2.0"),
  xsimd: join(cacheFolder, "xsimd-13"),
  emscripten: join(cacheFolder, "emscripten-3.1.69"),
  node24: join(cacheFolder, "node-24.21.0"),
  next: join(cacheFolder, `next-${lockHash()}`),
  ...Object.fromEntries(
    runtimes.map(({ key, version }) => [key, join(cacheFolder, `${key}-${version}`)]),
  ),
};

// Not the unpacked one, which an environment made of `--print` has on its PATH: that one needs its own
// tsc and configuration.
function emscriptenOnPath() {
  const emcc = which("emcc");
  if (emcc?.startsWith(toolFolders.emscripten)) return null;
  const version = emcc && capture(emcc, ["-dumpversion"]);
  return version && isAtLeast(version, minimumEmscripten) ? { emcc, version } : null;
}

function unpackedEmscripten() {
  const folder = toolFolders.emscripten;
  if (!isProvided(folder)) return null;
  return {
    emcc: join(folder, "usr/share/emscripten/emcc"),
    version: "3.1.69",
    config: join(folder, "emscripten.config"),
    bin: join(folder, "node_modules/.bin"),
  };
}

function chromium() {
  const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
  return process.env.HEED_CHROMIUM ?? names.map((name) => which(name)).find(Boolean) ?? null;
}

function xsimdInclude() {
  const folders = [join(toolFolders.xsimd, "usr/include"), "/usr/include", "/usr/local/include"];
  return folders.find((folder) => existsSync(join(folder, "xsimd/xsimd.hpp"))) ?? null;
}

// Relaxed SIMD is on by default from Node 22; this Node serves where it is new enough.
function node24() {
  if (isAtLeast(process.versions.node, "22")) return process.execPath;
  const names = isProvided(toolFolders.node24) ? [`node-${process.platform}-${process.arch}`] : [];
  const paths = names.map((name) => join(toolFolders.node24, "node_modules", name, "bin/node"));
  return paths.find((path) => existsSync(path)) ?? null;
}

function runtimePrograms() {
  return Object.fromEntries(
    runtimes.map(({ key, package: packageName, program }) => {
      const path = join(toolFolders[key], "node_modules", packageName ?? "", program);
      return [key, packageName && isProvided(toolFolders[key]) && existsSync(path) ? path : null];
    }),
  );
}

export function toolchain() {
  const emscripten = emscriptenOnPath() ?? unpackedEmscripten();
  const paths = {
    cache: cacheFolder,
    emcc: emscripten?.emcc ?? null,
    highway: isProvided(toolFolders.highway) ? toolFolders.highway : null,
    xsimd: xsimdInclude(),
    chromium: chromium(),
    node24: node24(),
    next: isProvided(toolFolders.next) ? toolFolders.next : null,
    ...runtimePrograms(),
    ccache: which("ccache"),
  };
  // Emscripten's own tsc comes first: --emit-tsd calls whichever is found.
  const folders = [
    emscripten?.bin,
    paths.emcc && dirname(paths.emcc),
    join(root, "node_modules/.bin"),
  ];
  const variables = {
    PATH: [...folders.filter(Boolean), process.env.PATH].join(delimiter),
    EM_CONFIG: emscripten?.config,
    EM_NODE_JS: emscripten?.config && process.execPath,
    HEED_HIGHWAY: paths.highway,
    HEED_XSIMD: paths.xsimd,
    HEED_CHROMIUM: paths.chromium,
    HEED_NODE24: paths.node24,
    CCACHE_DIR: join(cacheFolder, "ccache"),
    // Clones in different folders share compiled objects: paths below the root count as relative.
    CCACHE_BASEDIR: root,
    CCACHE_NOHASHDIR: "1",
    CCACHE_MAXSIZE: "3G",
    // What is compiled with precompiled headers is kept too.
    CCACHE_SLOPPINESS: "pch_defines,time_macros",
  };
  const set = Object.entries(variables).filter(([, value]) => value);
  return {
    ...paths,
    version: emscripten?.version,
    variables: Object.fromEntries(set),
    get env() {
      return { ...process.env, ...this.variables };
    },
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url) && process.argv.includes("--print")) {
  for (const [name, value] of Object.entries(toolchain().variables)) {
    console.log(`export ${name}=${quoted(value)}`);
  }
}
