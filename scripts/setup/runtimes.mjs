// What runs the packed package besides Node and Chromium: other runtimes, and a Next.js to build with.
// None is a development dependency: npm would refuse the whole installation where one has no program.
import { cpSync, existsSync } from "node:fs";
import { join } from "node:path";
import { run } from "../process.mjs";
import { nextFixture, runtimes, toolchain, toolFolders } from "../toolchain.mjs";
import { provide } from "./provide.mjs";
import { installModules } from "./unpacked.mjs";

async function installNext(folder) {
  for (const name of ["package.json", "package-lock.json"]) {
    cpSync(join(nextFixture, name), join(folder, name));
  }
  const options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"];
  await run("npm", ["ci", ...options], { cwd: folder, quiet: true });
}

// Without one of them its tests are skipped, and say so.
async function provideOptional(report, { name, key, install }) {
  const before = toolchain()[key];
  let problem = "no program for this platform";
  try {
    if (!before && install) await provide(toolFolders[key], install);
  } catch (error) {
    problem = error.message.split("\n").findLast((line) => line.trim() !== "") ?? "";
  }
  const path = toolchain()[key];
  const state = before ? "found" : path ? "installed" : "missing";
  report(name, state, path ?? `its tests are skipped: ${problem}`);
}

export async function provideRuntimes(report) {
  for (const { name, key, package: packageName, version } of runtimes) {
    const spec = packageName && `${packageName}@${version}`;
    const install = spec && ((folder) => installModules(folder, [spec]));
    await provideOptional(report, { name, key, install });
  }
  const install = existsSync(nextFixture) && installNext;
  await provideOptional(report, { name: "Next.js", key: "next", install });
}
