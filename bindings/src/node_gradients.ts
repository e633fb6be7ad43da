import { gradientsFiles } from "./gradients_files.js";
import type { Heed } from "./heed.js";
import { makeLoad } from "./load.js";
import type { LoadOptions } from "./load_options.js";
import { NODE_THREAD, node } from "./node_platform.js";

export * from "./exports.js";

const platform = node("gradients", gradientsFiles, {
  "simd-threads": {
    glue: () => import("./wasm/heed-gradients-simd-threads.node.mjs"),
    newThread: () =>
      new Worker(
        new URL("./wasm/heed-gradients-simd-threads.node.mjs", import.meta.url),
        NODE_THREAD,
      ),
  },
  "relaxed-threads": {
    glue: () => import("./wasm/heed-gradients-relaxed-threads.node.mjs"),
    newThread: () =>
      new Worker(
        new URL("./wasm/heed-gradients-relaxed-threads.node.mjs", import.meta.url),
        NODE_THREAD,
      ),
  },
});

/**
 * Loads heed: chooses the WebAssembly variant that this engine can run, reads it, and tests it once.
 * This is heed/gradients: all that heed has, and `vjp` of every mechanism with a gradient; a larger
 * download.
 * Each call gives an instance with memory of its own. Throws HeedError ("wasm-load", "unsupported").
 */
export function load(options?: LoadOptions): Promise<Heed> {
  return makeLoad(platform)(options);
}
