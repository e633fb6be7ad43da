import type { GlueFactory } from "./glue.js";
import type { Variant } from "./heed.js";
import type { Platform, ThreadLimit } from "./platform.js";

type GlueModule = { default: GlueFactory };

// Every import and every URL is written out: bundlers find files by reading these very lines.
const GLUE: Record<Variant | "reference", () => Promise<GlueModule>> = {
  simd: () => import("./wasm/heed-simd.mjs"),
  relaxed: () => import("./wasm/heed-relaxed.mjs"),
  "simd-threads": () => import("./wasm/heed-simd-threads.mjs"),
  "relaxed-threads": () => import("./wasm/heed-relaxed-threads.mjs"),
  reference: () => import("./wasm/heed-reference.mjs"),
};

const URLS: Record<Variant | "reference", () => URL> = {
  simd: () => new URL("./wasm/heed-simd.wasm", import.meta.url),
  relaxed: () => new URL("./wasm/heed-relaxed.wasm", import.meta.url),
  "simd-threads": () => new URL("./wasm/heed-simd-threads.wasm", import.meta.url),
  "relaxed-threads": () => new URL("./wasm/heed-relaxed-threads.wasm", import.meta.url),
  reference: () => new URL("./wasm/heed-reference.wasm", import.meta.url),
};

interface WebGlobals {
  crossOriginIsolated?: boolean;
  document?: unknown;
  navigator?: { hardwareConcurrency?: number };
  process?: { getBuiltinModule?: (name: string) => unknown };
}

const globals = (): WebGlobals => globalThis as WebGlobals;

function threadLimit(): ThreadLimit {
  const { crossOriginIsolated, document, navigator } = globals();
  if (document !== undefined) {
    return { count: 1, reason: "a window's main thread must not block; threads run in workers" };
  }
  if (crossOriginIsolated !== true) {
    return { count: 1, reason: "the page is not cross-origin isolated (COOP and COEP headers)" };
  }
  const count = navigator?.hardwareConcurrency ?? 1;
  return { count, reason: `${count} hardware threads` };
}

interface FileSystem {
  readFile(url: URL): Promise<Uint8Array>;
}

/** A server-side bundle of this entry runs in Node, whose fetch() reads no files. */
async function readFile(url: URL): Promise<Uint8Array> {
  const files = globals().process?.getBuiltinModule?.("node:fs/promises") as FileSystem | undefined;
  if (files === undefined) throw new Error("files cannot be read here");
  return files.readFile(url);
}

export const web: Platform = {
  glue: (file) => GLUE[file](),
  url: (file) => URLS[file](),
  readFile,
  threadLimit,
};
