import type { WorkerEvents, WorkerPort } from "./remote_client.js";
import type { RemoteHeed } from "./remote_heed.js";
import type { FromWorker } from "./remote_messages.js";
import { makeSpawn, type SpawnOptions } from "./spawn.js";

function portOf(worker: Worker, events: WorkerEvents): WorkerPort {
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
}

/** The `spawn` of browsers; `makeWorker` starts the file that belongs to the entry point. */
export const makeWebSpawn = (
  makeWorker: () => Worker,
): ((options?: SpawnOptions) => Promise<RemoteHeed>) =>
  makeSpawn((make) => (events) => portOf((make?.() ?? makeWorker()) as Worker, events));
