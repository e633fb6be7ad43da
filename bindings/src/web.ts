import type { Build } from "./heed.js";
import type {
  Platform,
  ThreadLimit,
  TrainingFiles,
  TrainingPlatform,
  WasmFiles,
} from "./platform.js";

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

export const web = (build: Build, files: WasmFiles): Platform => ({
  build,
  files,
  readFile,
  threadLimit,
});

export const webTraining = (files: TrainingFiles): TrainingPlatform => ({
  build: "training",
  files,
  readFile,
  threadLimit,
});
