// The race in a worker: nothing else runs on its thread, and the page stays free to say how it goes.
import { type Heed, load } from "heed";
import ortPage from "../../../node_modules/onnxruntime-web/dist/ort.wasm.min.mjs?url";
import ortGlue from "../../../node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.mjs?url";
import ortWasm from "../../../node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm?url";
import { heedContestant, onnxContestants, plainContestant } from "./contestants.js";
import { EXACT, type RaceRequest } from "./request.js";
import { clockStep, race } from "./run.js";

const absolute = (address: string) => new URL(address, self.location.href).href;

let runtime: Promise<object> | undefined;
/** Fetched from the site's own files, and only when a race asks for it. */
function onnxRuntime(): Promise<object> {
  runtime ??= import(/* @vite-ignore */ absolute(ortPage)).then((ort) => {
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmPaths = { mjs: absolute(ortGlue), wasm: absolute(ortWasm) };
    ort.env.logLevel = "error";
    return ort;
  });
  return runtime;
}

const instances = new Map<string, Promise<Heed>>();
/** One thread each: the same for all that run. */
function heedFor(id: string): Promise<Heed> {
  const known = instances.get(id) ?? load({ threads: 1 });
  instances.set(id, known);
  return known;
}

const tell = (message: object) => self.postMessage(message);

async function run(request: RaceRequest): Promise<void> {
  const exact = await heedFor(EXACT);
  const { simd, threads, version } = exact;
  tell({ track: { simd, threads, version, clockStep: clockStep() } });
  const ids = [EXACT, ...request.mechanisms];
  const mechanisms = await Promise.all(
    ids.map(async (id) => heedContestant(await heedFor(id), id, request.causal)),
  );
  const peers = [
    plainContestant(request.causal),
    ...(request.onnx ? onnxContestants(request.causal, onnxRuntime) : []),
  ];
  const reference: Heed["reference"] = (...call) => exact.reference(...call);
  await race(request, { contestants: [...mechanisms, ...peers], reference, tell });
  tell({ finished: true });
}

self.onmessage = ({ data }: MessageEvent<RaceRequest>) => {
  run(data).catch((error: unknown) => {
    tell({ problem: error instanceof Error ? error.message : String(error) });
  });
};
