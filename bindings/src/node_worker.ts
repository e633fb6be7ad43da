import { Worker } from "node:worker_threads";
import type { WorkerEvents, WorkerPort } from "./remote_client.js";
import type { RemoteHeed } from "./remote_heed.js";
import { makeSpawn, type SpawnOptions } from "./spawn.js";

export * from "./exports.js";
export * from "./worker_exports.js";

const makeWorker = (): Worker => new Worker(new URL("./node_worker_script.js", import.meta.url));

const start =
  (make: (() => unknown) | undefined) =>
  (events: WorkerEvents): WorkerPort => {
    const worker = (make?.() ?? makeWorker()) as Worker;
    worker.on("message", (message) => events.message(message));
    worker.on("messageerror", (cause) => events.failure(cause));
    worker.on("error", (cause) => events.failure(cause));
    worker.on("exit", (code) => events.failure(new Error(`exit code ${code}`)));
    return {
      send: (message, transfer) => worker.postMessage(message, transfer),
      terminate: () => void worker.terminate(),
      hold: (busy) => (busy ? worker.ref() : worker.unref()),
    };
  };

/**
 * Starts a worker thread and loads heed in it: the same API with promises. An idle worker does not keep
 * the process alive. Throws HeedError ("wasm-load", "unsupported").
 */
export function spawn(options?: SpawnOptions): Promise<RemoteHeed> {
  return makeSpawn(start)(options);
}
