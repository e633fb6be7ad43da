import { checkWish, choose, chooseSingle } from "./choose.js";
import { HeedError } from "./errors.js";
import { detectFeatures } from "./features.js";
import type { GlueFactory, MemoryGlue } from "./glue.js";
import type { Choice } from "./heed.js";
import type { LoadOptions } from "./load_options.js";
import { asRecord, checkNames } from "./option_names.js";
import type { AnyPlatform, FileKey, WasmFile } from "./platform.js";
import { progressOf } from "./progress.js";
import { makeSharedMemory } from "./shared_memory.js";
import { bytesOf } from "./source.js";
import { VERSION } from "./version.js";
import { BUILD_ID } from "./wasm/build_id.js";
import { compileBytes, compileUrl } from "./wasm_file.js";

const NAMES: ReadonlySet<string> = new Set([
  "threads",
  "simd",
  "wasmUrl",
  "wasmBinary",
  "module",
  "onProgress",
]);

function toUrl(given: string | URL): URL {
  const base = (globalThis as { location?: { href?: string } }).location?.href;
  try {
    return new URL(given, base);
  } catch (cause) {
    throw new HeedError("option", `wasmUrl: ${String(given)} is not an address`, { cause });
  }
}

/** A file's name without "heed-" and ".wasm"; also its label. */
const fileName = (file: FileKey, platform: AnyPlatform): string =>
  platform.build === "full" || file === "reference" ? file : `${platform.build}-${file}`;

/** The file of a platform; one that it has not is none of those that it may be asked for. */
function fileOf(file: FileKey, platform: AnyPlatform): WasmFile {
  const files: Partial<Record<FileKey, WasmFile>> = platform.files;
  return files[file] as WasmFile;
}

/** Also of a module that another realm compiled, as hosts do that forbid compiling. */
function isModule(given: unknown): given is WebAssembly.Module {
  try {
    WebAssembly.Module.exports(given as WebAssembly.Module);
    return true;
  } catch {
    return false;
  }
}

async function compile(
  file: FileKey,
  options: LoadOptions,
  platform: AnyPlatform,
): Promise<WebAssembly.Module> {
  if (options.module !== undefined) {
    if (!isModule(options.module)) {
      throw new HeedError("option", "module: expected a WebAssembly.Module");
    }
    return options.module;
  }
  if (options.wasmBinary !== undefined) {
    const bytes = bytesOf("wasmBinary", options.wasmBinary);
    if (bytes === undefined) {
      throw new HeedError("option", "wasmBinary: expected an ArrayBuffer or a Uint8Array");
    }
    return compileBytes(bytes, "wasmBinary");
  }
  const { wasmUrl } = options;
  const report = progressOf(options.onProgress);
  if (wasmUrl === undefined) {
    const { bytes, url } = fileOf(file, platform);
    if (bytes !== undefined) return compileBytes(await bytes(), `heed-${file}.wasm`);
    return compileUrl(url(), platform, report);
  }
  const given =
    typeof wasmUrl === "function" ? wasmUrl(`heed-${fileName(file, platform)}.wasm`) : wasmUrl;
  return compileUrl(toUrl(given), platform, report);
}

/** Emscripten's glue, once it is there. */
async function factoryOf(
  imported: ReturnType<WasmFile["glue"]>,
  name: string,
): Promise<GlueFactory> {
  try {
    return (await imported).default;
  } catch (cause) {
    throw new HeedError(
      "wasm-load",
      `heed: the JavaScript of heed-${name}.wasm could not be loaded: ${String(cause)}`,
      { cause },
    );
  }
}

/** What Emscripten's glue is told about threads. */
interface Threading {
  pthreadPoolSize: number;
  newThread: WasmFile["newThread"] | undefined;
  wasmMemory?: WebAssembly.Memory;
}

/** A worker that failed while it started: no file, or the page or Node forbids it. */
function threadError(cause: unknown): HeedError {
  const { message } = cause as { message?: unknown };
  const why = `threads: a worker could not start${message ? `: ${message}` : ""}`;
  return new HeedError("unsupported", why, { cause });
}

/** Instantiates a compiled module through Emscripten's glue. */
async function instantiate<Glue extends MemoryGlue>(
  factory: GlueFactory,
  module: WebAssembly.Module,
  threading: Threading,
): Promise<Glue> {
  const glue = await new Promise<unknown>((resolve, reject) => {
    const silent = (): void => {};
    const instantiateWasm = (
      imports: WebAssembly.Imports,
      receive: (instance: WebAssembly.Instance, module: WebAssembly.Module) => void,
    ): object => {
      // Constructors run inside receive(): what they throw must reject as well.
      WebAssembly.instantiate(module, imports)
        .then((made) => receive(made, module))
        .catch(reject);
      return {};
    };
    let isStarting = true;
    const settings = {
      ...threading,
      // Whether the failure of a thread is dealt with.
      threadFailed(cause: unknown): boolean {
        reject(threadError(cause));
        return isStarting;
      },
      print: silent,
      printErr: silent,
      instantiateWasm,
    };
    factory(settings)
      .finally(() => {
        isStarting = false;
      })
      .then(resolve, reject);
  });
  return glue as Glue;
}

/** The text in a custom section of a file. */
function readSection(module: WebAssembly.Module, name: string): string | undefined {
  const [section] = WebAssembly.Module.customSections(module, name);
  return section && new TextDecoder().decode(section);
}

/**
 * Which variant of which version a file is, which bindings/embind/label.h says, and of which build,
 * which scripts/build_id.mjs says.
 */
function readLabel(module: WebAssembly.Module): string {
  const label = readSection(module, "heed");
  if (label === undefined) return "something else";
  return `${label}, build ${readSection(module, "heed.build") ?? "unknown"}`;
}

/** A stale file would trap or compute nonsense: it must not even be instantiated. */
function checkBelongs(module: WebAssembly.Module, file: string): void {
  const label = readLabel(module);
  const wanted = `${file} ${VERSION}, build ${BUILD_ID}`;
  if (label === wanted) return;
  throw new HeedError(
    "wasm-load",
    `heed: the WebAssembly file is ${label}, expected ${wanted}; a stale copy in a cache or on a CDN?`,
  );
}

/** Why an instance did not start, by what its glue threw. */
function startError(cause: unknown, name: string): HeedError {
  if (cause instanceof HeedError) return cause;
  if (cause instanceof RangeError) {
    return new HeedError("memory", `heed: no memory for an instance: ${cause.message}`, { cause });
  }
  // A page starts workers of its own origin alone.
  if (cause instanceof Error && cause.name === "SecurityError") {
    const why = `threads: the page may not start workers of heed's files: ${cause.message}`;
    return new HeedError("unsupported", why, { cause });
  }
  const why = `heed: heed-${name}.wasm does not fit this version's JavaScript: ${String(cause)}`;
  return new HeedError("wasm-load", why, { cause });
}

/** Compiles, checks and instantiates a file. */
export async function open<Glue extends MemoryGlue>(
  file: FileKey,
  options: LoadOptions,
  platform: AnyPlatform,
  threads: number,
): Promise<Glue> {
  // Imported while the module is fetched and compiled; a failure is reported where it is awaited.
  const { glue, newThread } = fileOf(file, platform);
  const imported = glue();
  imported.catch(() => {});
  const module = await compile(file, options, platform);
  const name = fileName(file, platform);
  checkBelongs(module, name);
  const factory = await factoryOf(imported, name);
  try {
    const shared = threads > 1 && { wasmMemory: makeSharedMemory() };
    const threading = { pthreadPoolSize: threads - 1, newThread, ...shared };
    return await instantiate<Glue>(factory, module, threading);
  } catch (cause) {
    throw startError(cause, name);
  }
}

/** Whether a lesser variant is worth a try: the file was there, but this one cannot run here. */
const mayFallBack = (error: unknown): boolean =>
  error instanceof HeedError && ["memory", "unsupported", "crashed"].includes(error.code);

/** Makes what `load` gives of the best variant that runs here. */
export async function openBest<Instance>(
  options: LoadOptions | undefined,
  platform: AnyPlatform,
  start: (choice: Choice, given: LoadOptions) => Promise<Instance>,
): Promise<Instance> {
  const given = asRecord("load", options) as LoadOptions;
  checkNames("load", given, NAMES);
  const { wasmUrl, wasmBinary, module } = given;
  progressOf(given.onProgress);
  const ownFile =
    module !== undefined ||
    wasmBinary !== undefined ||
    (wasmUrl !== undefined && typeof wasmUrl !== "function");
  const wish = checkWish(given.threads, given.simd, ownFile);
  const features = detectFeatures();
  const choices =
    platform.single === undefined
      ? choose(wish, features, platform.threadLimit())
      : chooseSingle(wish, features, platform.single);
  let first: unknown;
  for (const choice of choices) {
    try {
      return await start(choice, given);
    } catch (error) {
      if (!mayFallBack(error)) throw error;
      first ??= error;
    }
  }
  throw first;
}
