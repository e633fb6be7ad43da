// The compiler writes every source as JavaScript and as types. Of these the package ships what an entry point
// reads: not modules of types alone, nor what the bundles have taken in.
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";

const isCompiled = (name) => /\.(js|d\.ts)$/.test(name);

/** The files of `dist` that a file names, as imports or as scripts of workers; types import types. */
function namedIn(dist, name) {
  const named = readFileSync(join(dist, name), "utf8").matchAll(/["'`]\.\/([\w./-]+\.m?js)["'`]/g);
  const files = [...named].map(([, file]) => file);
  return name.endsWith(".d.ts") ? files.map((file) => file.replace(/\.js$/, ".d.ts")) : files;
}

/** Files that pages import by their paths: their types are those beside them. */
const typesBeside = (name) => (/^browser.*\.js$/.test(name) ? [name.replace(/js$/, "d.ts")] : []);

/** Removes what no path of `exports`, an object of package.json, leads to; gives its names. */
export function removeUnread(dist, exports) {
  const targets = JSON.stringify(exports).matchAll(/"\.\/dist\/([\w.-]+)"/g);
  const open = [...targets].map(([, file]) => file).filter(isCompiled);
  const read = new Set();
  while (open.length > 0) {
    const name = open.pop();
    if (read.has(name) || !existsSync(join(dist, name))) continue;
    read.add(name);
    open.push(...namedIn(dist, name), ...typesBeside(name));
  }
  const unread = readdirSync(dist).filter((name) => isCompiled(name) && !read.has(name));
  for (const name of unread) rmSync(join(dist, name));
  return unread;
}
