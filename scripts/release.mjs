// Prepares a release: checks, packs, tags. Publishes nothing.
//   npm run release -- --check     the version is the same everywhere and the log mentions it
//   npm run release                also: all checks, build/release/*.tgz with its hash, a git tag
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { commandLine } from "./command_line.mjs";
import { capture, run } from "./process.mjs";
import { reproduce } from "./reproduce.mjs";
import { main, step } from "./steps.mjs";
import { root, toolchain } from "./toolchain.mjs";

const read = (file) => readFileSync(join(root, file), "utf8");

// Where the version is written, and how.
const places = {
  "package.json": /^ {2}"version": "([^"]+)"/m,
  "package-lock.json": /^ {2}"version": "([^"]+)"/m,
  "CMakeLists.txt": /^project\(heed VERSION (\S+)/m,
  "bindings/src/version.ts": /VERSION = "([^"]+)"/,
};

export function versions() {
  return Object.entries(places).map(([file, pattern]) => [file, pattern.exec(read(file))?.[1]]);
}

// The one version of the tree. Throws where files disagree.
export function treeVersion() {
  const found = versions();
  const [, version] = found[0];
  const other = found.find(([, value]) => value !== version);
  if (other) throw new Error(`${other[0]} says ${other[1]}, ${found[0][0]} says ${version}`);
  if (!parse(version)) throw new Error(`${version} is not a version: MAJOR.MINOR.PATCH`);
  return version;
}

const parse = (version) =>
  /^(\d+)\.(\d+)\.(\d+)$/
    .exec(version ?? "")
    ?.slice(1)
    .map(Number);

// Whether `next` may follow `last`: one step of semantic versioning, nothing skipped.
export function mayFollow(last, next) {
  const [major, minor, patch] = parse(last);
  const allowed = [
    [major + 1, 0, 0],
    [major, minor + 1, 0],
    [major, minor, patch + 1],
  ];
  return allowed.some((version) => version.join(".") === next);
}

// What the change log says about a version; null when it has no section or an empty one.
export function changesOf(log, version) {
  const sections = log.split(/^## /m).slice(1);
  const section = sections.find(
    (text) => text.startsWith(version) && /^\s/.test(text.at(version.length) ?? ""),
  );
  if (!section) return null;
  const [heading, ...lines] = section.split("\n");
  const text = lines.join("\n").trim();
  return text === "" ? null : { heading, text };
}

// The section of a version that is to be released is dated and the last one before Unreleased.
export function checkLog(log, version) {
  const changes = changesOf(log, version);
  if (!changes) {
    throw new Error(
      `CHANGELOG.md has no "## ${version} (YYYY-MM-DD)" with the changes of ${version}`,
    );
  }
  if (!/\(\d{4}-\d{2}-\d{2}\)$/.test(changes.heading.trim())) {
    throw new Error(`CHANGELOG.md: "## ${changes.heading}" has no date: (YYYY-MM-DD)`);
  }
  if (changesOf(log, "Unreleased")) {
    throw new Error(
      "CHANGELOG.md: what is under Unreleased belongs to this version or a later one",
    );
  }
  return changes;
}

const git = (...args) => capture("git", args, { cwd: root });

function checkTree(version) {
  if (git("status", "--porcelain") !== "") throw new Error("there are uncommitted changes");
  const tags = (git("tag", "--list", "v*", "--sort=-v:refname") ?? "").split("\n").filter(Boolean);
  if (tags.includes(`v${version}`)) throw new Error(`v${version} is tagged already`);
  const last = tags[0]?.slice(1);
  if (last && !mayFollow(last, version)) {
    throw new Error(`${version} does not follow ${last}: one step of MAJOR, MINOR or PATCH`);
  }
}

async function pack(folder) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  await run("npm", ["pack", "--ignore-scripts", "--pack-destination", folder], {
    cwd: root,
    quiet: true,
  });
  const [tarball] = readdirSync(folder);
  const hash = createHash("sha256")
    .update(readFileSync(join(folder, tarball)))
    .digest("hex");
  writeFileSync(join(folder, "SHA256SUMS"), `${hash}  ${tarball}\n`);
  return `${tarball} ${hash}`;
}

async function release() {
  const version = treeVersion();
  const { heading, text } = checkLog(read("CHANGELOG.md"), version);
  checkTree(version);
  await step("Checks", () => run("npm", ["run", "check"], { cwd: root }));
  await step("Tests", () => run("npm", ["test"], { cwd: root }));
  await step("Build the WASM elsewhere", () => reproduce(toolchain()));
  const packed = await step("Pack", () => pack(join(root, "build/release")));
  const message = `heed ${heading.trim()}\n\n${text}\n`;
  await run("git", ["tag", "-a", `v${version}`, "-m", message], { cwd: root });
  console.log(
    `\n${packed}\nbuild/release is what to publish; the tag v${version} is what to push.`,
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const options = { check: { type: "boolean" } };
  const { check } = await commandLine(
    import.meta.url,
    (args) => parseArgs({ args, options }).values,
  );
  await main(async () => {
    if (!check) return release();
    const version = treeVersion();
    const changes =
      changesOf(read("CHANGELOG.md"), version) ?? changesOf(read("CHANGELOG.md"), "Unreleased");
    if (!changes)
      throw new Error(`CHANGELOG.md says nothing about ${version}, nor about Unreleased`);
    console.log(`heed ${version}: the same in ${versions().length} files; the log has its changes`);
  });
}
