// Every variant that needs threads: only a worker may wait for them.
import { checkVariant } from "./mechanisms.js";

self.onmessage = async ({ data }) => {
  try {
    self.postMessage({ result: await checkVariant(data) });
  } catch (error) {
    self.postMessage({ error: String(error) });
  }
};
