import { fullFiles } from "./full_files.js";
import type { Heed } from "./heed.js";
import { makeLoad } from "./load.js";
import type { LoadOptions } from "./load_options.js";
import { web } from "./web.js";

const platform = web("full", fullFiles);

/**
 * Loads heed: chooses the WebAssembly variant that this engine can run, fetches it, and tests it once.
 * Each call gives an instance with memory of its own. Throws HeedError ("wasm-load", "unsupported").
 */
export function load(options?: LoadOptions): Promise<Heed> {
  return makeLoad(platform)(options);
}
