import type { TrainingFiles } from "./platform.js";

// Every import and every URL is written out: bundlers find files by reading these very lines.

/** The build that trains. */
export const trainingFiles: TrainingFiles = {
  simd: {
    glue: () => import("./wasm/heed-training-simd.mjs"),
    url: () => new URL("./wasm/heed-training-simd.wasm", import.meta.url),
  },
  relaxed: {
    glue: () => import("./wasm/heed-training-relaxed.mjs"),
    url: () => new URL("./wasm/heed-training-relaxed.wasm", import.meta.url),
  },
  "simd-threads": {
    glue: () => import("./wasm/heed-training-simd-threads.mjs"),
    url: () => new URL("./wasm/heed-training-simd-threads.wasm", import.meta.url),
    newThread: () =>
      new Worker(new URL("./wasm/heed-training-simd-threads.mjs", import.meta.url), {
        type: "module",
        name: "em-pthread",
      }),
  },
  "relaxed-threads": {
    glue: () => import("./wasm/heed-training-relaxed-threads.mjs"),
    url: () => new URL("./wasm/heed-training-relaxed-threads.wasm", import.meta.url),
    newThread: () =>
      new Worker(new URL("./wasm/heed-training-relaxed-threads.mjs", import.meta.url), {
        type: "module",
        name: "em-pthread",
      }),
  },
};
