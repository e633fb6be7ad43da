/** A compiled WebAssembly module, where the TypeScript library in use knows the type. */
export type WasmModule = typeof globalThis extends {
  WebAssembly: { Module: { prototype: infer M } };
}
  ? M
  : object;

/** A URL, where the TypeScript library in use knows the type. */
export type Url = typeof globalThis extends { URL: { prototype: infer U } }
  ? U
  : { readonly href: string };

/** How much of a WebAssembly file has arrived. */
export interface LoadProgress {
  /** Bytes so far, uncompressed. */
  readonly loaded: number;
  /** Bytes of the whole file; absent where the server does not say (compressed answers). */
  readonly total: number | undefined;
}

/** Options of `load()`. */
export interface LoadOptions {
  /**
   * How many threads work on a call. "auto" (default): all hardware threads in Node and in workers of
   * a cross-origin isolated page, else 1. A number (1 to 64) becomes 1 where threads cannot be had;
   * `heed.reasons` says why. It is refused ("unsupported") where a page comes from another origin than
   * heed's files, whose workers it may not start.
   */
  readonly threads?: number | "auto" | undefined;
  /**
   * "plain" gives the same bits on every machine; "relaxed" is faster, and refused where the engine
   * lacks it. Default "auto".
   */
  readonly simd?: "auto" | "relaxed" | "plain" | undefined;
  /**
   * Where the WebAssembly lies, if not beside the package: one file, or a function from the file's name
   * ("heed-simd.wasm", in heed/core "heed-core-simd.wasm", in heed/gradients and heed/training
   * alike) to its address.
   */
  readonly wasmUrl?: string | Url | ((file: string) => string | Url) | undefined;
  /** The bytes of the WebAssembly file. */
  readonly wasmBinary?: ArrayBuffer | Uint8Array | undefined;
  /** The compiled file: for hosts that forbid compiling. */
  readonly module?: WasmModule | undefined;
  /** Called while the WebAssembly file arrives. What it throws is ignored. */
  readonly onProgress?: ((progress: LoadProgress) => void) | undefined;
}
