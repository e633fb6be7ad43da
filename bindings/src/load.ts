import type { KernelGlue, ReferenceGlue } from "./glue.js";
import { Heap } from "./heap.js";
import { type Choice, Heed } from "./heed.js";
import type { LoadOptions } from "./load_options.js";
import { open, openBest } from "./open.js";
import type { Platform } from "./platform.js";
import { Registry } from "./registry.js";
import { selfTest } from "./self_test.js";
import { VERSION } from "./version.js";

/** Loads the oracle on first use; a failure may be tried again. */
function lazyReference(
  options: LoadOptions,
  platform: Platform,
): () => Promise<Heap<ReferenceGlue>> {
  const { wasmUrl } = options;
  const own: LoadOptions = typeof wasmUrl === "function" ? { wasmUrl } : {};
  let loading: Promise<Heap<ReferenceGlue>> | undefined;
  return async () => {
    // One that has crashed is of no use to later calls.
    if ((await loading)?.usable === false) loading = undefined;
    loading ??= open<ReferenceGlue>("reference", own, platform, 1).then(
      (glue) => new Heap(glue),
      (error) => {
        loading = undefined;
        throw error;
      },
    );
    return loading;
  };
}

async function start(choice: Choice, options: LoadOptions, platform: Platform): Promise<Heed> {
  const glue = await open<KernelGlue>(choice.variant, options, platform, choice.threads);
  const heap = new Heap(glue);
  // Its workers live on until they are stopped.
  try {
    heap.callChecked((module) => module.setThreads(choice.threads));
    const heed = new Heed({
      heap,
      registry: new Registry(heap, platform.build),
      choice,
      build: platform.build,
      version: VERSION,
      loadReference: lazyReference(options, platform),
    });
    selfTest(heed);
    return heed;
  } catch (error) {
    heap.close();
    throw error;
  }
}

/** The `load` of a platform. */
export function makeLoad(platform: Platform): (options?: LoadOptions) => Promise<Heed> {
  return (options) =>
    openBest(options, platform, (choice, given) => start(choice, given, platform));
}
