// A worker whose heed traps when softmax is called.
import { parentPort } from "node:worker_threads";
import { HeedError, load } from "../../dist/node.js";
import { host } from "../../dist/remote_host.js";

const receive = host(
  { send: (message, transfer) => parentPort.postMessage(message, transfer) },
  async (options) => {
    const heed = await load(options);
    const softmax = () => {
      throw new HeedError("crashed", "heed: the WebAssembly instance crashed");
    };
    return Object.assign(heed, { softmax });
  },
);
parentPort.on("message", receive);
