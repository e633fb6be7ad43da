// Modules with and without threads are linked from the same objects, compiled for threads. The linker finds
// a variable of each thread (thread_local) only where memory is shared: elsewhere its address would be
// another's. Such an object names __tls_base, and may go into modules with threads alone.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { capture } from "./process.mjs";

const SYMBOL = "__tls_base";
const ofThreads = /-threads(_[a-z]+)?_objects\.dir/;

/** Those of the objects in a build folder that have such variables and are not of threads alone. */
export function sharedThreadLocals(folder, objects) {
  return objects.filter(
    (name) => !ofThreads.test(name) && readFileSync(join(folder, name)).includes(SYMBOL),
  );
}

/** Throws if a build by Ninja has such objects; what an older build left in the folder does not count. */
export function refuseSharedThreadLocals(folder, options) {
  const targets = capture("ninja", ["-C", folder, "-t", "targets", "all"], options);
  const objects = [...(targets ?? "").matchAll(/^(\S+\.o): /gm)].map(([, name]) => name);
  if (objects.length === 0) throw new Error(`ninja knows no objects in ${folder}`);
  const found = sharedThreadLocals(folder, objects);
  if (found.length === 0) return;
  throw new Error(
    `thread_local in objects that modules without threads share (bindings/embind/CMakeLists.txt):\n${found.join("\n")}`,
  );
}
