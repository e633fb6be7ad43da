// The file that heed/worker starts in a browser.
import { load } from "./index.js";
import { host } from "./remote_host.js";
import type { FromWorker, ToWorker } from "./remote_messages.js";

interface WorkerGlobals {
  postMessage(message: FromWorker, transfer: ArrayBuffer[]): void;
  onmessage: ((event: { readonly data: ToWorker }) => void) | null;
}

const here = globalThis as unknown as WorkerGlobals;
const receive = host({ send: (message, transfer) => here.postMessage(message, transfer) }, load);
here.onmessage = ({ data }) => receive(data);
