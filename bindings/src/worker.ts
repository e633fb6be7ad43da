/**
 * heed in a worker: the API of `"heed"` with promises. `spawn()` gives a {@link RemoteHeed}.
 *
 * @module heed/worker
 */
import type { WorkerEvents, WorkerPort } from "./remote_client.js";
import type { RemoteHeed } from "./remote_heed.js";
import type { FromWorker } from "./remote_messages.js";
import { makeSpawn, type SpawnOptions } from "./spawn.js";

export * from "./exports.js";
export * from "./worker_exports.js";

/** The line below is written out: bundlers find the worker's file by reading it. */
const makeWorker = (): Worker =>
  new Worker(new URL("./worker_script.js", import.meta.url), { type: "module" });

const start =
  (make: (() => unknown) | undefined) =>
  (events: WorkerEvents): WorkerPort => {
    const worker = (make?.() ?? makeWorker()) as Worker;
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => events.message(data);
    worker.onmessageerror = () => events.failure(new Error("a message could not be read"));
    worker.onerror = (event) => {
      event.preventDefault();
      events.failure(event);
    };
    return {
      send: (message, transfer) => worker.postMessage(message, transfer),
      terminate: () => worker.terminate(),
      hold() {},
    };
  };

/**
 * Starts a dedicated worker and loads heed in it: the same API with promises, and all cores where the
 * page is cross-origin isolated. Throws HeedError ("wasm-load", "unsupported").
 */
export function spawn(options?: SpawnOptions): Promise<RemoteHeed> {
  return makeSpawn(start)(options);
}
