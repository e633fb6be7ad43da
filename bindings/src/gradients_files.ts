import type { WasmFiles } from "./platform.js";

// Every import and every URL is written out: bundlers find files by reading these very lines.

/** The build with every mechanism and every gradient. The oracle is the same. */
export const gradientsFiles: WasmFiles = {
  simd: {
    glue: () => import("./wasm/heed-gradients-simd.mjs"),
    url: () => new URL("./wasm/heed-gradients-simd.wasm", import.meta.url),
  },
  relaxed: {
    glue: () => import("./wasm/heed-gradients-relaxed.mjs"),
    url: () => new URL("./wasm/heed-gradients-relaxed.wasm", import.meta.url),
  },
  "simd-threads": {
    glue: () => import("./wasm/heed-gradients-simd-threads.mjs"),
    url: () => new URL("./wasm/heed-gradients-simd-threads.wasm", import.meta.url),
    newThread: () =>
      new Worker(new URL("./wasm/heed-gradients-simd-threads.mjs", import.meta.url), {
        type: "module",
        name: "em-pthread",
      }),
  },
  "relaxed-threads": {
    glue: () => import("./wasm/heed-gradients-relaxed-threads.mjs"),
    url: () => new URL("./wasm/heed-gradients-relaxed-threads.wasm", import.meta.url),
    newThread: () =>
      new Worker(new URL("./wasm/heed-gradients-relaxed-threads.mjs", import.meta.url), {
        type: "module",
        name: "em-pthread",
      }),
  },
  reference: {
    glue: () => import("./wasm/heed-reference.mjs"),
    url: () => new URL("./wasm/heed-reference.wasm", import.meta.url),
  },
};
