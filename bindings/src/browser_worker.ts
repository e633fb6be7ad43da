// `heed/worker` for pages without a bundler: scripts/bundle.mjs makes one file of it. The worker's is another.
import type { RemoteHeed } from "./remote_heed.js";
import type { SpawnOptions } from "./spawn.js";
import { makeWebSpawn } from "./web_spawn.js";

export * from "./exports.js";
export * from "./worker_exports.js";

const makeWorker = (): Worker =>
  new Worker(new URL("./browser_worker_script.js", import.meta.url), { type: "module" });

/**
 * Starts a dedicated worker and loads heed in it: the same API with promises, and all cores where the
 * page is cross-origin isolated. Throws HeedError ("wasm-load", "unsupported").
 */
export function spawn(options?: SpawnOptions): Promise<RemoteHeed> {
  return makeWebSpawn(makeWorker)(options);
}
