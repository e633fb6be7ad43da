// Whether the WebAssembly is the same bytes wherever it is built: compiles the last commit once more, in
// another folder and without ccache, and compares with build/wasm.
//   node scripts/reproduce.mjs [heed-simd heed-reference ...]     all modules without a name
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { run } from "./process.mjs";
import { main } from "./steps.mjs";
import { root, toolchain } from "./toolchain.mjs";

const hashOf = (file) => createHash("sha256").update(readFileSync(file)).digest("hex");

async function buildElsewhere({ env, highway }, folder, names) {
  await run("git", ["clone", "--quiet", "--local", root, folder], { quiet: true });
  const found = highway ? [`-DFETCHCONTENT_SOURCE_DIR_HIGHWAY=${highway}`] : [];
  const options = { cwd: folder, env, quiet: true };
  await run("emcmake", ["cmake", "--preset", "wasm", ...found], options);
  const targets = names.length ? ["--target", ...names] : [];
  await run("cmake", ["--build", "--preset", "wasm", ...targets], options);
}

// Throws where a module differs; returns their hashes.
export function compare(folder, other, names = []) {
  const files = readdirSync(other).filter((name) => name.endsWith(".wasm"));
  const wanted = names.length ? names.map((name) => `${name}.wasm`) : files;
  return wanted.map((name) => {
    const [here, there] = [folder, other].map((at) => hashOf(join(at, name)));
    if (here !== there) throw new Error(`${name}: ${here} here, ${there} built elsewhere`);
    return `${here}  ${name}`;
  });
}

export async function reproduce(tools, names = []) {
  const folder = mkdtempSync(join(tmpdir(), "heed-reproduce-"));
  try {
    await buildElsewhere(tools, folder, names);
    const hashes = compare(join(root, "build/wasm"), join(folder, "build/wasm"), names);
    console.log(hashes.join("\n"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await main(() => reproduce(toolchain(), process.argv.slice(2)));
}
