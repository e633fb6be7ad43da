import { fail, HeedError } from "./errors.js";
import type { LoadOptions } from "./load_options.js";
import { asRecord, checkNames } from "./option_names.js";
import { progressOf } from "./progress.js";
import { Client, type StartWorker } from "./remote_client.js";
import type { RemoteHeed } from "./remote_heed.js";
import type { SentOptions } from "./remote_messages.js";
import { RemoteObjects } from "./remote_objects.js";

/** Options of `spawn()`: those of `load()`, and where the worker comes from. */
export interface SpawnOptions extends LoadOptions {
  /**
   * Makes the worker, for hosts where the package's own file cannot be found or bundlers that need the
   * line in your code: `() => new Worker(new URL("heed/worker-script", import.meta.url), { type: "module" })`.
   * Called for every new worker.
   */
  readonly worker?: (() => unknown) | undefined;
}

const NAMES: ReadonlySet<string> = new Set([
  "threads",
  "simd",
  "wasmUrl",
  "wasmBinary",
  "module",
  "onProgress",
  "worker",
]);

/** Files that `wasmUrl` may be asked for. */
const FILES = ["simd", "relaxed", "simd-threads", "relaxed-threads", "reference"].map(
  (name) => `heed-${name}.wasm`,
);

/** Addresses are relative to the page, not to the worker's file. */
function toAbsolute(given: unknown): string {
  const base = (globalThis as { location?: { href?: string } }).location?.href;
  try {
    return new URL(given as string | URL, base).href;
  } catch (cause) {
    throw new HeedError("option", `wasmUrl: ${String(given)} is not an address`, { cause });
  }
}

/** A worker cannot ask a function of the page: it gets the answers. */
function toSent({ wasmUrl, ...options }: LoadOptions): SentOptions {
  const { threads, simd, wasmBinary, module } = options;
  const sent = { threads, simd, wasmBinary, module };
  if (wasmUrl === undefined) return sent;
  if (typeof wasmUrl !== "function") return { ...sent, wasmUrl: toAbsolute(wasmUrl) };
  const answers = FILES.map((file) => [file, toAbsolute(wasmUrl(file))] as const);
  return { ...sent, wasmUrl: Object.fromEntries(answers) };
}

function defineAsyncDispose(heed: RemoteHeed): void {
  const { asyncDispose } = Symbol as { asyncDispose?: symbol };
  if (asyncDispose !== undefined) {
    Object.defineProperty(heed, asyncDispose, { value: heed.dispose });
  }
}

/** The `spawn` of a platform. */
export function makeSpawn(
  start: (make: (() => unknown) | undefined) => StartWorker,
): (options?: SpawnOptions) => Promise<RemoteHeed> {
  return async (options) => {
    const given = asRecord("spawn", options) as SpawnOptions;
    checkNames("spawn", given, NAMES);
    const { worker } = given;
    if (worker !== undefined && typeof worker !== "function") {
      fail("option", "worker", worker, "a function that makes a Worker");
    }
    const client = new Client(start(worker), toSent(given), progressOf(given.onProgress));
    const { face, choice, ...facts } = await client.open();
    const constant = { ...facts, ...choice };
    const fields = face.fields.filter((name) => !(name in constant));
    const functions = face.functions.filter((name) => name !== "dispose");
    const dispose = async (): Promise<void> => client.dispose();
    const own = { ...constant, dispose };
    const heed = new RemoteObjects(client).shape(own, 0, { ...face, functions, fields });
    defineAsyncDispose(heed as unknown as RemoteHeed);
    return heed as unknown as RemoteHeed;
  };
}
