/**
 * The API of `"heed"` with the gradients of every mechanism that has one: layers, low-rank, recurrent and
 * selective rows too. For whole models there is `"heed/training"`.
 *
 * @module heed/gradients
 */
import { gradientsFiles } from "./gradients_files.js";
import type { Heed } from "./heed.js";
import { makeLoad } from "./load.js";
import type { LoadOptions } from "./load_options.js";
import { web } from "./web.js";

export * from "./exports.js";

const platform = web("gradients", gradientsFiles);

/**
 * Loads heed: chooses the WebAssembly variant that this engine can run, fetches it, and tests it once.
 * This is heed/gradients: all that heed has, and `vjp` of every mechanism with a gradient; a larger
 * download.
 * Each call gives an instance with memory of its own. Throws HeedError ("wasm-load", "unsupported").
 */
export function load(options?: LoadOptions): Promise<Heed> {
  return makeLoad(platform)(options);
}
