// The tests that need nothing built, of the tree itself and of these scripts.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { root } from "./toolchain.mjs";

export function treeTests() {
  return ["tests/layout", "tests/scripts"].flatMap((name) => {
    const folder = join(root, name);
    const files = existsSync(folder) ? readdirSync(folder) : [];
    return files.filter((file) => file.endsWith(".test.mjs")).map((file) => join(folder, file));
  });
}
