// The file that heed/worker starts in a browser. It imports no entry of the package: Vite's development
// server replaces those by bundled copies, whose classes are not the ones that are asked for here.
import { load } from "./load_full.js";
import { host } from "./remote_host.js";
import type { FromWorker, ToWorker } from "./remote_messages.js";

interface WorkerGlobals {
  postMessage(message: FromWorker, transfer: ArrayBuffer[]): void;
  onmessage: ((event: { readonly data: ToWorker }) => void) | null;
}

const here = globalThis as unknown as WorkerGlobals;
const receive = host({ send: (message, transfer) => here.postMessage(message, transfer) }, load);
here.onmessage = ({ data }) => receive(data);
