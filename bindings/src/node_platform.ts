import type { Build } from "./heed.js";
import type {
  Platform,
  ThreadLimit,
  TrainingFiles,
  TrainingPlatform,
  WasmFile,
  WasmFiles,
} from "./platform.js";

// Node's own modules are asked for, not imported: Node would make modules of all their names, for a
// millisecond. What Node 22.0 to 22.2 lack, they have in other ways.

/** Read synchronously: a promise's turns would queue behind importing the glue, and compiling would wait for them. */
async function readFile(url: URL): Promise<Uint8Array> {
  const { readFileSync } = process.getBuiltinModule?.("node:fs") ?? (await import("node:fs"));
  return readFileSync(url);
}

function hardwareThreads(): number {
  const { hardwareConcurrency } = (globalThis as { navigator?: Navigator }).navigator ?? {};
  return process.getBuiltinModule?.("node:os").availableParallelism() ?? hardwareConcurrency ?? 1;
}

function threadLimit(): ThreadLimit {
  // Workers inherit this flag, and die of it because they are started from a file.
  if (process.execArgv.some((flag) => flag.startsWith("--input-type"))) {
    return { count: 1, reason: "node --input-type cannot start workers" };
  }
  // Under --permission, and without --allow-worker.
  const { permission } = process as { permission?: { has(scope: string): boolean } };
  if (permission?.has("worker") === false) {
    return { count: 1, reason: "Node's permissions allow no workers" };
  }
  const count = hardwareThreads();
  return { count, reason: `${count} hardware threads` };
}

type Threaded = "simd-threads" | "relaxed-threads";

type ThreadedGlue = Record<Threaded, Pick<WasmFile, "glue" | "newThread">>;

/** How a thread is started: Node's workers know by `workerData` what they are, those of the web by their name. */
export const NODE_THREAD = {
  type: "module",
  workerData: "em-pthread",
  name: "em-pthread",
} as WorkerOptions;

/** Node starts its workers in its own way: `glue` is other JavaScript around the same files. */
function withGlue<Files extends Record<Threaded, WasmFile>>(
  files: Files,
  glue: ThreadedGlue,
): Files {
  const file = (name: Threaded): WasmFile => ({ ...files[name], ...glue[name] });
  return {
    ...files,
    "simd-threads": file("simd-threads"),
    "relaxed-threads": file("relaxed-threads"),
  };
}

export const node = (build: Build, files: WasmFiles, glue: ThreadedGlue): Platform => ({
  build,
  files: withGlue(files, glue),
  readFile,
  threadLimit,
});

export const nodeTraining = (files: TrainingFiles, glue: ThreadedGlue): TrainingPlatform => ({
  build: "training",
  files: withGlue(files, glue),
  readFile,
  threadLimit,
});
