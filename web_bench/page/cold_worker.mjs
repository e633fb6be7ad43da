// One cold start in a page; the thread count comes as the message.
import { coldStart } from "../cold_start.mjs";

globalThis.onmessage = async ({ data: threads }) => {
  try {
    const address = new URL("/heed/browser.js", globalThis.location.origin).href;
    const result = await coldStart(() => import(/* @vite-ignore */ address), threads);
    globalThis.postMessage({ result });
  } catch (error) {
    globalThis.postMessage({ error: String(error?.stack ?? error) });
  }
};
