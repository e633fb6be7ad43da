// The file that heed/worker starts in Node.
import { parentPort } from "node:worker_threads";
import { load } from "./node.js";
import { host } from "./remote_host.js";

const receive = host(
  { send: (message, transfer) => parentPort?.postMessage(message, transfer) },
  load,
);
parentPort?.on("message", receive);
