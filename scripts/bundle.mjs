// Entry points as few files. Node opens and compiles every file of an import by itself, which takes longer
// than what they do; a browser asks for them, level by level. So `heed` is one file for Node (beside errors.js),
// and each of the other entry points one beside a few that they share. For browsers without a bundler each is
// one file. index.js and the others beside it stay modules: bundlers take what they need of them.
import { readdirSync } from "node:fs";
import { join } from "node:path";

const NOT_ENTRIES = ["node_platform.js"];

/** The compiled entry points in `dist` whose names begin with `kind`. */
const entriesIn = (dist, kind) =>
  readdirSync(dist).filter(
    (name) => new RegExp(`^${kind}(_\\w+)?\\.js$`).test(name) && !NOT_ENTRIES.includes(name),
  );

// The glue stays files: which one is needed is known when the engine is.
const GLUE = "./wasm/*.mjs";

const optionsFor = (dist, names) => ({
  entryPoints: names.map((name) => join(dist, name)),
  outdir: dist,
  absWorkingDir: dist,
  allowOverwrite: true,
  bundle: true,
  format: "esm",
  logLevel: "warning",
});

async function bundleNode(build, dist) {
  const main = "node.js";
  const others = entriesIn(dist, "node").filter((name) => name !== main);
  const forNode = (names) => ({
    ...optionsFor(dist, names),
    platform: "node",
    target: "node20",
    // `heed/inline` has this class too, and errors are told by it.
    external: ["./errors.js", GLUE],
  });
  const chunkNames = "node_shared_[hash]";
  await build({ ...forNode(others), splitting: true, chunkNames });
  // Most programs import this one alone: as six files it took 10 ms, as one it takes 5.
  await build(forNode([main]));
}

// Nothing is shared here: a page imports one of them, or one and the worker, and a shared file is asked for after
// the one that names it is there.
const bundleBrowser = (build, dist) =>
  build({
    ...optionsFor(dist, entriesIn(dist, "browser")),
    platform: "browser",
    target: "es2022",
    external: [GLUE],
    // Names stay as they are, for traces.
    minifyWhitespace: true,
  });

/** Replaces the entry points for Node and for browsers by bundles; wasm/build_id.js is taken in. */
export async function bundle(dist) {
  const { build } = await import("esbuild");
  await bundleNode(build, dist);
  await bundleBrowser(build, dist);
}
