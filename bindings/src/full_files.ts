import type { WasmFiles } from "./platform.js";

// Every import and every URL is written out: bundlers find files by reading these very lines.

/** The build with every mechanism. */
export const fullFiles: WasmFiles = {
  simd: {
    glue: () => import("./wasm/heed-simd.mjs"),
    url: () => new URL("./wasm/heed-simd.wasm", import.meta.url),
  },
  relaxed: {
    glue: () => import("./wasm/heed-relaxed.mjs"),
    url: () => new URL("./wasm/heed-relaxed.wasm", import.meta.url),
  },
  "simd-threads": {
    glue: () => import("./wasm/heed-simd-threads.mjs"),
    url: () => new URL("./wasm/heed-simd-threads.wasm", import.meta.url),
    newThread: () =>
      new Worker(new URL("./wasm/heed-simd-threads.mjs", import.meta.url), {
        type: "module",
        name: "em-pthread",
      }),
  },
  "relaxed-threads": {
    glue: () => import("./wasm/heed-relaxed-threads.mjs"),
    url: () => new URL("./wasm/heed-relaxed-threads.wasm", import.meta.url),
    newThread: () =>
      new Worker(new URL("./wasm/heed-relaxed-threads.mjs", import.meta.url), {
        type: "module",
        name: "em-pthread",
      }),
  },
  reference: {
    glue: () => import("./wasm/heed-reference.mjs"),
    url: () => new URL("./wasm/heed-reference.wasm", import.meta.url),
  },
};
