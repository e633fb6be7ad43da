import type { WasmFiles } from "./platform.js";

// Every import and every URL is written out: bundlers find files by reading these very lines.

/** The build with exact attention, layers and positions alone. The oracle is the same. */
export const coreFiles: WasmFiles = {
  simd: {
    glue: () => import("./wasm/heed-core-simd.mjs"),
    url: () => new URL("./wasm/heed-core-simd.wasm", import.meta.url),
  },
  relaxed: {
    glue: () => import("./wasm/heed-core-relaxed.mjs"),
    url: () => new URL("./wasm/heed-core-relaxed.wasm", import.meta.url),
  },
  "simd-threads": {
    glue: () => import("./wasm/heed-core-simd-threads.mjs"),
    url: () => new URL("./wasm/heed-core-simd-threads.wasm", import.meta.url),
    newThread: () =>
      new Worker(new URL("./wasm/heed-core-simd-threads.mjs", import.meta.url), {
        type: "module",
        name: "em-pthread",
      }),
  },
  "relaxed-threads": {
    glue: () => import("./wasm/heed-core-relaxed-threads.mjs"),
    url: () => new URL("./wasm/heed-core-relaxed-threads.wasm", import.meta.url),
    newThread: () =>
      new Worker(new URL("./wasm/heed-core-relaxed-threads.mjs", import.meta.url), {
        type: "module",
        name: "em-pthread",
      }),
  },
  reference: {
    glue: () => import("./wasm/heed-reference.mjs"),
    url: () => new URL("./wasm/heed-reference.wasm", import.meta.url),
  },
};
