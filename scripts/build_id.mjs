// Which build a WebAssembly file is of: the same text in each file and in the JavaScript beside them, so
// that a stale copy of a file in a cache is known for what it is.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const SECTION = "heed.build";
const DIGITS = 16;

// Bytes with their count before them, as WebAssembly writes it.
function counted(bytes) {
  const count = [];
  let left = bytes.length;
  for (; left > 0x7f; left >>>= 7) count.push((left & 0x7f) | 0x80);
  return Buffer.concat([Buffer.from([...count, left]), bytes]);
}

// The hash of what all files of the build do, in the order of their names.
export function buildIdOf(files) {
  const hash = createHash("sha256");
  for (const [name, bytes] of [...files].sort(([a], [b]) => (a < b ? -1 : 1))) {
    hash.update(`${name} ${bytes.length}\n`).update(bytes);
  }
  return hash.digest("hex").slice(0, DIGITS);
}

// The file with a custom section that holds the text.
export function withSection(wasm, text) {
  const section = Buffer.concat([counted(Buffer.from(SECTION)), Buffer.from(text)]);
  return Buffer.concat([wasm, Buffer.from([0]), counted(section)]);
}

// Marks all WebAssembly files of a folder and writes build_id.js beside them.
export function markBuild(folder) {
  const names = readdirSync(folder).filter((name) => name.endsWith(".wasm"));
  const files = names.map((name) => [name, readFileSync(join(folder, name))]);
  const id = buildIdOf(files);
  for (const [name, bytes] of files) writeFileSync(join(folder, name), withSection(bytes, id));
  writeFileSync(join(folder, "build_id.js"), `export const BUILD_ID = "${id}";\n`);
}
