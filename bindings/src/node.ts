import { readFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import type { GlueFactory } from "./glue.js";
import type { Heed, Variant } from "./heed.js";
import { makeLoad } from "./load.js";
import type { LoadOptions } from "./load_options.js";
import type { Platform, ThreadLimit } from "./platform.js";
import { web } from "./web.js";

export * from "./exports.js";

type GlueModule = { default: GlueFactory };

// Node starts its workers in its own way: other glue around the same WebAssembly.
const THREADED_GLUE: Partial<Record<Variant | "reference", () => Promise<GlueModule>>> = {
  "simd-threads": () => import("./wasm/heed-simd-threads.node.mjs"),
  "relaxed-threads": () => import("./wasm/heed-relaxed-threads.node.mjs"),
};

function threadLimit(): ThreadLimit {
  // Workers inherit this flag, and die of it because they are started from a file.
  if (process.execArgv.some((flag) => flag.startsWith("--input-type"))) {
    return { count: 1, reason: "node --input-type cannot start workers" };
  }
  const count = availableParallelism();
  return { count, reason: `${count} hardware threads` };
}

const node: Platform = {
  glue: (file) => (THREADED_GLUE[file] ?? (() => web.glue(file)))(),
  url: web.url,
  readFile,
  threadLimit,
};

/**
 * Loads heed: chooses the WebAssembly variant that this engine can run, reads it, and tests it once.
 * Each call gives an instance with memory of its own. Throws HeedError ("wasm-load", "unsupported").
 */
export function load(options?: LoadOptions): Promise<Heed> {
  return makeLoad(node)(options);
}
