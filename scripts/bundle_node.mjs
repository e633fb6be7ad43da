// Node opens and compiles every file of an import by itself, which takes longer than what they do. So each entry
// point for Node is one file beside a few that they share. The web's stay modules: bundlers take what they need.
import { readdirSync } from "node:fs";
import { join } from "node:path";

/** The entry points for Node in `dist`, compiled. */
const entriesIn = (dist) =>
  readdirSync(dist).filter((name) => /^node\w*\.js$/.test(name) && name !== "node_platform.js");

export async function bundleNode(dist) {
  const { build } = await import("esbuild");
  await build({
    entryPoints: entriesIn(dist).map((name) => join(dist, name)),
    outdir: dist,
    absWorkingDir: dist,
    allowOverwrite: true,
    bundle: true,
    splitting: true,
    chunkNames: "node_shared_[hash]",
    format: "esm",
    platform: "node",
    target: "node20",
    // `heed/inline` and the web's entry points have this class too, and errors are told by it.
    external: ["./errors.js", "./wasm/*"],
    logLevel: "warning",
  });
}
