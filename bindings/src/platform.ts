import type { GlueFactory } from "./glue.js";
import type { Build, Variant } from "./heed.js";

/** How many threads a call may use here, and why. */
export interface ThreadLimit {
  count: number;
  reason: string;
}

/** One WebAssembly file of the package. */
export interface WasmFile {
  /** JavaScript that Emscripten made for it. */
  glue(): Promise<{ default: GlueFactory }>;
  /** Where it lies. */
  url(): URL;
  /** Starts a worker that is to become one of its threads. */
  newThread?(): Worker;
  /** Its bytes, where the package holds them in JavaScript. */
  bytes?(): Promise<Uint8Array>;
}

/** The kernels' variants and the oracle. */
export type FileKey = Variant | "reference";
export type WasmFiles = Record<FileKey, WasmFile>;

/** What differs between Node and the web, and between the builds. */
interface PlatformOf<B extends string, Files> {
  build: B;
  files: Files;
  /** Why there is no choice of variants; the plainest is the only one then. */
  single?: string;
  /** Bytes of a file URL, where files can be read. */
  readFile?(url: URL): Promise<Uint8Array>;
  threadLimit(): ThreadLimit;
}

/** Of an entry with mechanisms and the oracle. */
export type Platform = PlatformOf<Build, WasmFiles>;
/** Of the entry that trains. */
export type TrainingFiles = Record<Variant, WasmFile>;
export type TrainingPlatform = PlatformOf<"training", TrainingFiles>;
export type AnyPlatform = Platform | TrainingPlatform;
