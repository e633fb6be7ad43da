// npm run check: formatters, linters, types, the packed package; reports all that fails.
//   npm run check -- --fix     formats what can be formatted
import { existsSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { commandLine } from "./command_line.mjs";
import { capture, run, which } from "./process.mjs";
import { setup } from "./setup.mjs";
import { main } from "./steps.mjs";
import { root, toolchain } from "./toolchain.mjs";
import { treeTests } from "./tree_tests.mjs";

const options = { fix: { type: "boolean" } };
const { fix } = await commandLine(import.meta.url, (args) => parseArgs({ args, options }).values);
const program = (path) => join(root, "node_modules", path);

// clang-format changes its mind between versions; the sources follow the one of Debian 12.
const clangFormatVersion = "14";

function clangFormat() {
  const found = ["clang-format-14", "clang-format"].map((name) => which(name)).filter(Boolean);
  const version = (path) => /version (\d+)/.exec(capture(path, ["--version"]) ?? "")?.[1];
  return found.find((path) => version(path) === clangFormatVersion) ?? null;
}

function trackedSources() {
  const patterns = ["*.h", "*.cc"];
  const args = ["ls-files", "--cached", "--others", "--exclude-standard", ...patterns];
  const listed = capture("git", args, { cwd: root });
  return (listed ?? "").split("\n").filter((file) => file && existsSync(join(root, file)));
}

// [title, command, arguments] or [title, null, why it is skipped].
function checks() {
  const node = process.execPath;
  const formatter = clangFormat();
  const hasPackage = existsSync(join(root, "dist/index.js"));
  const unbuilt = "dist/ is not built: npm run build";
  const formatting = fix ? ["-i"] : ["--dry-run", "-Werror"];
  return [
    formatter
      ? ["clang-format", formatter, [...formatting, ...trackedSources()]]
      : ["clang-format", null, `needs clang-format ${clangFormatVersion}`],
    [
      "biome",
      node,
      [program("@biomejs/biome/bin/biome"), "check", ...(fix ? ["--write"] : []), "."],
    ],
    ["layout", node, ["--test", "--test-reporter=dot", ...treeTests()]],
    ["version and change log", node, ["scripts/release.mjs", "--check"]],
    ["types of bindings", node, [program("typescript/bin/tsc"), "-p", "bindings", "--noEmit"]],
    hasPackage
      ? [
          "svelte-check",
          node,
          [program("svelte-check/bin/svelte-check"), "--tsconfig", "web/tsconfig.json"],
        ]
      : ["svelte-check", null, unbuilt],
    hasPackage
      ? ["publint", node, [program("publint/src/cli.js"), "--strict"]]
      : ["publint", null, unbuilt],
    hasPackage
      ? [
          "types of the package",
          node,
          [program("@arethetypeswrong/cli/dist/index.js"), "--pack", ".", "--profile", "esm-only"],
        ]
      : ["types of the package", null, unbuilt],
    hasPackage
      ? ["size limits", node, [program("size-limit/bin.js")]]
      : ["size limits", null, unbuilt],
  ];
}

await main(async () => {
  await setup();
  const failed = [];
  for (const [title, command, rest] of checks()) {
    if (!command) {
      console.log(`\n=== ${title}: skipped, ${rest}`);
      continue;
    }
    console.log(`\n=== ${title}`);
    try {
      await run(command, rest, { cwd: root, env: toolchain().env });
    } catch {
      failed.push(title);
    }
  }
  console.log(failed.length ? `\nheed: failed: ${failed.join(", ")}` : "\nheed: all checks passed");
  if (failed.length) process.exitCode = 1;
});
