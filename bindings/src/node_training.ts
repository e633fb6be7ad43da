import type { LoadOptions } from "./load_options.js";
import { NODE_THREAD, nodeTraining } from "./node_platform.js";
import type { Training } from "./training_exports.js";
import { trainingFiles } from "./training_files.js";
import { openTraining } from "./training_load.js";

export * from "./training_exports.js";

const platform = nodeTraining(trainingFiles, {
  "simd-threads": {
    glue: () => import("./wasm/heed-training-simd-threads.node.mjs"),
    newThread: () =>
      new Worker(
        new URL("./wasm/heed-training-simd-threads.node.mjs", import.meta.url),
        NODE_THREAD,
      ),
  },
  "relaxed-threads": {
    glue: () => import("./wasm/heed-training-relaxed-threads.node.mjs"),
    newThread: () =>
      new Worker(
        new URL("./wasm/heed-training-relaxed-threads.node.mjs", import.meta.url),
        NODE_THREAD,
      ),
  },
});

/**
 * Loads the kit: chooses the WebAssembly variant that this engine can run, reads it, and tests it once.
 * Each call gives an instance with memory of its own. Throws HeedError ("wasm-load", "unsupported").
 */
export function load(options?: LoadOptions): Promise<Training> {
  return openTraining(platform, options);
}
