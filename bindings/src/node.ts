import { fullFiles } from "./full_files.js";
import type { Heed } from "./heed.js";
import { makeLoad } from "./load.js";
import type { LoadOptions } from "./load_options.js";
import { NODE_THREAD, node } from "./node_platform.js";

export * from "./exports.js";

const platform = node("full", fullFiles, {
  "simd-threads": {
    glue: () => import("./wasm/heed-simd-threads.node.mjs"),
    newThread: () =>
      new Worker(new URL("./wasm/heed-simd-threads.node.mjs", import.meta.url), NODE_THREAD),
  },
  "relaxed-threads": {
    glue: () => import("./wasm/heed-relaxed-threads.node.mjs"),
    newThread: () =>
      new Worker(new URL("./wasm/heed-relaxed-threads.node.mjs", import.meta.url), NODE_THREAD),
  },
});

/**
 * Loads heed: chooses the WebAssembly variant that this engine can run, reads it, and tests it once.
 * Each call gives an instance with memory of its own. Throws HeedError ("wasm-load", "unsupported").
 */
export function load(options?: LoadOptions): Promise<Heed> {
  return makeLoad(platform)(options);
}
