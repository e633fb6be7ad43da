import { coreFiles } from "./core_files.js";
import type { Heed } from "./heed.js";
import { makeLoad } from "./load.js";
import type { LoadOptions } from "./load_options.js";
import { web } from "./web.js";

export * from "./exports.js";

const platform = web("core", coreFiles);

/**
 * Loads heed: chooses the WebAssembly variant that this engine can run, fetches it, and tests it once.
 * This is heed/core: exact attention, its layers, positions, caches and analysis; a smaller download.
 * Each call gives an instance with memory of its own. Throws HeedError ("wasm-load", "unsupported").
 */
export function load(options?: LoadOptions): Promise<Heed> {
  return makeLoad(platform)(options);
}
