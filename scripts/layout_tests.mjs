// The tests of the tree itself, run by npm test and npm run check.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { root } from "./toolchain.mjs";

export function layoutTests() {
  const folder = join(root, "tests/layout");
  const names = existsSync(folder) ? readdirSync(folder) : [];
  return names.filter((name) => name.endsWith(".mjs")).map((name) => join(folder, name));
}
