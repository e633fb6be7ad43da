// Modules with and without threads are linked from the same objects, compiled for threads. The linker finds
// a variable of each thread (thread_local) only where memory is shared: elsewhere its address would be
// another's. Such an object names __tls_base, and may go into modules with threads alone.
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";

const SYMBOL = "__tls_base";
const ofThreads = /-threads(_[a-z]+)?_objects\.dir/;

/** The objects below a build folder that have such variables and are not of threads alone. */
export function sharedThreadLocals(folder) {
  const names = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(".o"));
  return names
    .filter((name) => !ofThreads.test(name) && readFileSync(join(folder, name)).includes(SYMBOL))
    .map((name) => relative(folder, join(folder, name)));
}

export function refuseSharedThreadLocals(folder) {
  const found = sharedThreadLocals(folder);
  if (found.length === 0) return;
  throw new Error(
    `thread_local in objects that modules without threads share (bindings/embind/CMakeLists.txt):\n${found.join("\n")}`,
  );
}
