import type { GlueFactory } from "./glue.js";
import type { Variant } from "./heed.js";

/** How many threads a call may use here, and why. */
export interface ThreadLimit {
  count: number;
  reason: string;
}

/** What differs between Node and the web. */
export interface Platform {
  /** JavaScript that Emscripten made for a variant. */
  glue(file: Variant | "reference"): Promise<{ default: GlueFactory }>;
  /** Where the package's own copy of a variant's WebAssembly lies. */
  url(file: Variant | "reference"): URL;
  /** Bytes of a file URL, where files can be read. */
  readFile?(url: URL): Promise<Uint8Array>;
  threadLimit(): ThreadLimit;
}
