// A visitor's model, away from the page's thread: files of strangers are read here.
import { load } from "heed";
import { ModelHost } from "./model_host.js";
import type { Asked } from "./wire.js";

const host = new ModelHost(
  (answer, transfer = []) => self.postMessage(answer, { transfer }),
  (options) => load(options),
);

self.onmessage = ({ data }: MessageEvent<Asked>) => host.hear(data);
