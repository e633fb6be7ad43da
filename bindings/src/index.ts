/**
 * Every attention mechanism, in WebAssembly. `load()` gives an instance of {@link Heed}; all else hangs
 * on that. `"heed/core"` has the same API with fewer mechanisms, `"heed/inline"` the same with the
 * WebAssembly inside, `"heed/worker"` the same with promises.
 *
 * @module heed
 */
import { fullFiles } from "./full_files.js";
import type { Heed } from "./heed.js";
import { makeLoad } from "./load.js";
import type { LoadOptions } from "./load_options.js";
import { web } from "./web.js";

export * from "./exports.js";

const platform = web("full", fullFiles);

/**
 * Loads heed: chooses the WebAssembly variant that this engine can run, fetches it, and tests it once.
 * Each call gives an instance with memory of its own. Throws HeedError ("wasm-load", "unsupported").
 */
export function load(options?: LoadOptions): Promise<Heed> {
  return makeLoad(platform)(options);
}
