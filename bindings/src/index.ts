/**
 * Every attention mechanism, in WebAssembly. `load()` gives an instance of {@link Heed}; all else hangs
 * on that. `"heed/core"` has the same API with fewer mechanisms, `"heed/gradients"` with more gradients,
 * `"heed/inline"` the same with the WebAssembly inside, `"heed/worker"` the same with promises.
 *
 * @module heed
 */
export * from "./exports.js";
export { load } from "./load_full.js";
