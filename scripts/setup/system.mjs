// What comes from the system: compilers, build tools, libraries, the browser. On Debian as root the
// missing packages are installed; elsewhere their names are told.
import { existsSync, readFileSync } from "node:fs";
import { capture, isAtLeast, run, which } from "../process.mjs";

// `found` answers with a version or path, or null.
const systemTools = [
  { name: "C++ compiler", packages: ["g++"], found: compiler, advice: "g++ 12+ or clang 16+" },
  { name: "CMake", packages: ["cmake"], found: () => program("cmake", "3.25"), advice: "3.25+" },
  { name: "Ninja", packages: ["ninja-build"], found: () => which("ninja") },
  {
    name: "GoogleTest",
    packages: ["libgtest-dev", "libgmock-dev"],
    found: () => header("gtest/gtest.h") && header("gmock/gmock.h"),
    advice: "else CMake downloads it",
    optional: true,
  },
  {
    name: "Google Benchmark",
    packages: ["libbenchmark-dev"],
    found: () => header("benchmark/benchmark.h"),
    optional: true,
  },
  {
    name: "CLI11",
    packages: ["libcli11-dev"],
    found: () => header("CLI/CLI.hpp"),
    advice: "for heed-bench; else CMake downloads it",
    optional: true,
  },
  {
    name: "nlohmann-json",
    packages: ["nlohmann-json3-dev"],
    found: () => header("nlohmann/json.hpp"),
    advice: "for heed-bench; else CMake downloads it",
    optional: true,
  },
  {
    name: "ccache",
    packages: ["ccache"],
    found: () => which("ccache"),
    advice: "makes rebuilds quick",
    optional: true,
  },
  {
    name: "clang-format",
    packages: ["clang-format"],
    found: () => which("clang-format"),
    advice: "for npm run check",
    optional: true,
  },
  {
    name: "Doxygen",
    packages: ["doxygen"],
    found: () => program("doxygen", "1.9"),
    advice: "for the C++ API reference, which is skipped without it",
    optional: true,
  },
  {
    name: "MPI",
    packages: ["libopenmpi-dev", "openmpi-bin"],
    found: () => which("mpicxx") && which("mpiexec"),
    advice: "for the tests of heed/mpi.h, which are left out without it",
    optional: true,
  },
  {
    name: "Chromium",
    packages: ["chromium"],
    found: () => process.env.HEED_CHROMIUM ?? which("chromium") ?? which("google-chrome"),
    advice: "for browser tests; HEED_CHROMIUM names another",
    optional: true,
  },
];

function program(name, minimum) {
  const path = which(name);
  const version = path && /\d+\.\d+(\.\d+)?/.exec(capture(path, ["--version"]) ?? "")?.[0];
  return version && isAtLeast(version, minimum) ? `${path} ${version}` : null;
}

function compiler() {
  for (const name of [process.env.CXX, "g++", "clang++"].filter(Boolean)) {
    const text = capture(name, ["--version"]);
    const version = text && /\b\d+\.\d+\.\d+/.exec(text)?.[0];
    const minimum = /clang/.test(text ?? "") ? "16" : "12";
    if (version && isAtLeast(version, minimum)) return `${name} ${version}`;
  }
  return null;
}

function header(name) {
  const folders = ["/usr/include", "/usr/local/include", "/opt/homebrew/include"];
  return folders.map((folder) => `${folder}/${name}`).find((path) => existsSync(path)) ?? null;
}

// { codename, release } on Debian, null elsewhere.
export function debian() {
  if (!existsSync("/etc/os-release") || !which("apt-get")) return null;
  const text = readFileSync("/etc/os-release", "utf8");
  const field = (name) => new RegExp(`^${name}="?([^"\\n]*)"?$`, "m").exec(text)?.[1];
  if (field("ID") !== "debian") return null;
  return { codename: field("VERSION_CODENAME"), release: Number(field("VERSION_ID")) };
}

export const isRoot = process.getuid?.() === 0;

export async function installPackages(packages) {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const options = ["-q", "-o", "DPkg::Lock::Timeout=300"];
  console.log(`setup: apt-get install ${packages.join(" ")}`);
  await run("apt-get", [...options, "update"], { env, quiet: true });
  const install = ["install", "-y", "--no-install-recommends", ...packages];
  await run("apt-get", [...options, ...install], { env, quiet: true });
}

// Reports one row per tool; throws when a required one is missing and cannot be installed.
export async function provideSystem(report) {
  const missing = systemTools.filter((tool) => !tool.found());
  const installable = debian() && isRoot;
  if (installable && missing.length) await installPackages(missing.flatMap((t) => t.packages));
  const lacking = [];
  for (const tool of systemTools) {
    const found = tool.found();
    const state = !found ? "missing" : missing.includes(tool) ? "installed" : "found";
    const advice = debian() ? `apt-get install ${tool.packages.join(" ")}` : (tool.advice ?? "");
    report(tool.name, state, found ?? [tool.advice, advice].filter(Boolean).join("; "));
    if (!found && !tool.optional) lacking.push(tool.name);
  }
  if (lacking.length) throw new Error(`needed and not here: ${lacking.join(", ")}`);
}
