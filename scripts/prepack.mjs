// npm pack and npm publish run this first: a package that lacks what it exports is not packed.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { main } from "./steps.mjs";
import { root } from "./toolchain.mjs";

const leavesOf = (value) =>
  typeof value === "string" ? [value] : Object.values(value).flatMap(leavesOf);

// The files that a manifest promises: what `exports` leads to, and every module with its glue.
export function promised({ exports, "size-limit": limits }) {
  const entries = leavesOf(exports).filter((path) => !path.includes("*"));
  const modules = limits.flatMap(({ path }) => path);
  const threaded = modules.filter((path) => path.endsWith("-threads.mjs"));
  const glue = threaded.map((path) => path.replace(/mjs$/, "node.mjs"));
  return [...new Set([...entries, ...modules, ...glue].map((path) => path.replace(/^\.\//, "")))];
}

export function refuseIncomplete(folder) {
  const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const missing = promised(manifest).filter((path) => !existsSync(join(folder, path)));
  if (missing.length === 0) return;
  const more = missing.length > 1 ? ` and ${missing.length - 1} other files` : "";
  throw new Error(
    `the package lacks ${missing[0]}${more}; this builds it: npm run build -- wasm package`,
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(() => refuseIncomplete(root));
