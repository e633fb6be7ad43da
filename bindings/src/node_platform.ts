import { readFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import type { Build } from "./heed.js";
import type { Platform, ThreadLimit, WasmFile, WasmFiles } from "./platform.js";

function threadLimit(): ThreadLimit {
  // Workers inherit this flag, and die of it because they are started from a file.
  if (process.execArgv.some((flag) => flag.startsWith("--input-type"))) {
    return { count: 1, reason: "node --input-type cannot start workers" };
  }
  const count = availableParallelism();
  return { count, reason: `${count} hardware threads` };
}

type Threaded = "simd-threads" | "relaxed-threads";

/** Node starts its workers in its own way: `glue` is other JavaScript around the same files. */
export function node(
  build: Build,
  files: WasmFiles,
  glue: Record<Threaded, WasmFile["glue"]>,
): Platform {
  const withGlue = (file: Threaded): WasmFile => ({ ...files[file], glue: glue[file] });
  return {
    build,
    files: {
      ...files,
      "simd-threads": withGlue("simd-threads"),
      "relaxed-threads": withGlue("relaxed-threads"),
    },
    readFile,
    threadLimit,
  };
}
