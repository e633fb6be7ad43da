// Node opens and compiles every file of an import by itself, which takes longer than what they do. So `heed`
// is one file for Node (beside errors.js and the build's number), and each of the other entry points one beside a few that they share. The web's stay
// modules: bundlers take what they need.
import { readdirSync } from "node:fs";
import { join } from "node:path";

/** The entry points for Node in `dist`, compiled. */
const entriesIn = (dist) =>
  readdirSync(dist).filter((name) => /^node\w*\.js$/.test(name) && name !== "node_platform.js");

const MAIN = "node.js";

const optionsFor = (dist, names) => ({
  entryPoints: names.map((name) => join(dist, name)),
  outdir: dist,
  absWorkingDir: dist,
  allowOverwrite: true,
  bundle: true,
  format: "esm",
  platform: "node",
  target: "node20",
  // `heed/inline` and the web's entry points have this class too, and errors are told by it.
  external: ["./errors.js", "./wasm/*"],
  logLevel: "warning",
});

export async function bundleNode(dist) {
  const { build } = await import("esbuild");
  const others = entriesIn(dist).filter((name) => name !== MAIN);
  const chunkNames = "node_shared_[hash]";
  await build({ ...optionsFor(dist, others), splitting: true, chunkNames });
  // Most programs import this one alone: as six files it took 10 ms, as one it takes 5.
  await build(optionsFor(dist, [MAIN]));
}
