/**
 * Training: transformers around any mechanism that has a gradient, in WebAssembly. A module of its own
 * that is loaded apart from `"heed"`.
 *
 * @module heed/training
 */
import type { LoadOptions } from "./load_options.js";
import type { Training } from "./training_exports.js";
import { trainingFiles } from "./training_files.js";
import { openTraining } from "./training_load.js";
import { webTraining } from "./web.js";

export * from "./training_exports.js";

const platform = webTraining(trainingFiles);

/**
 * Loads the kit: chooses the WebAssembly variant that this engine can run, fetches it, and tests it once.
 * Each call gives an instance with memory of its own. Throws HeedError ("wasm-load", "unsupported").
 */
export function load(options?: LoadOptions): Promise<Training> {
  return openTraining(platform, options);
}
