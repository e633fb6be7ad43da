import { HeedError } from "./errors.js";
import type { Heed } from "./heed.js";
import { unpackBase64 } from "./inline_bytes.js";
import { makeLoad } from "./load.js";
import type { LoadOptions } from "./load_options.js";
import type { Platform, WasmFile } from "./platform.js";
import packed from "./wasm/heed-simd.bytes.js";
import factory from "./wasm/heed-simd.inline.mjs";

export * from "./exports.js";

const REASON = "heed/inline holds the build with plain SIMD and one thread alone";

/** A file that is not in this entry. */
function absent(what: string): WasmFile {
  const refuse = (): never => {
    throw new HeedError("unsupported", `heed/inline holds no ${what}: import "heed" for it`);
  };
  return { glue: refuse, url: refuse };
}

const platform: Platform = {
  build: "full",
  single: REASON,
  files: {
    // Relaxed SIMD would double the size for those who have it, and break who has not.
    simd: {
      glue: async () => ({ default: factory }),
      url: absent("address").url,
      bytes: () => unpackBase64(packed),
    },
    relaxed: absent("relaxed SIMD"),
    "simd-threads": absent("threads"),
    "relaxed-threads": absent("threads"),
    reference: absent("reference"),
  },
  threadLimit: () => ({ count: 1, reason: REASON }),
};

/**
 * Loads heed from the WebAssembly inside this file, without any request: for pages opened from a disk,
 * sandboxed frames, and bundlers that refuse assets. Every mechanism, plain SIMD, one thread; no
 * `heed.reference`. Throws HeedError ("wasm-load", "unsupported").
 */
export function load(options?: LoadOptions): Promise<Heed> {
  return makeLoad(platform)(options);
}
