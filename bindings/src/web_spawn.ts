import { HeedError } from "./errors.js";
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

/** A page starts workers of its own origin alone, and of those that its policy allows. */
function startOwn(makeWorker: () => Worker): Worker {
  try {
    return makeWorker();
  } catch (cause) {
    throw new HeedError(
      "unsupported",
      `worker: the page may not start heed's own, give a function that makes one: ${String(cause)}`,
      { cause },
    );
  }
}

/** The `spawn` of browsers; `makeWorker` starts the file that belongs to the entry point. */
export const makeWebSpawn = (
  makeWorker: () => Worker,
): ((options?: SpawnOptions) => Promise<RemoteHeed>) =>
  makeSpawn((make) => (events) => portOf((make?.() ?? startOwn(makeWorker)) as Worker, events));
