// The packages as a page finds them. heed and onnxruntime-web are loaded as files of their own, as
// they come from a host; what they load in turn lies beside them.
import { setWasmPaths } from "@tensorflow/tfjs-backend-wasm";
import * as tf from "@tensorflow/tfjs-core";
import { runBenchmark } from "../run.mjs";

const at = (path) => new URL(path, globalThis.location.origin).href;

function pageEnvironment(threads) {
  const instances = new Map();
  let onnx;
  let backend;
  return {
    place: "chromium",
    threads,
    heed: (simd) => {
      if (!instances.has(simd)) {
        const loading = import(/* @vite-ignore */ at("/heed/browser.js"));
        instances.set(
          simd,
          loading.then(({ load }) => load({ threads, simd })),
        );
      }
      return instances.get(simd);
    },
    onnxWeb: () => {
      onnx ??= import(/* @vite-ignore */ at("/onnxruntime/ort.wasm.min.mjs")).then((ort) => {
        ort.env.wasm.numThreads = threads;
        ort.env.wasm.wasmPaths = at("/onnxruntime/");
        ort.env.logLevel = "error";
        return ort;
      });
      return onnx;
    },
    onnxNode: () => Promise.reject(new Error("a native library does not run in a page")),
    tensorflow: async () => {
      setWasmPaths(at("/tensorflow/"));
      // Its threads want workers of blobs, which the page's policy forbids; it waits for them forever.
      tf.env().set("WASM_HAS_MULTITHREAD_SUPPORT", false);
      backend ??= tf.setBackend("wasm");
      if (!(await backend)) throw new Error("the WebAssembly back end did not start");
      return tf;
    },
  };
}

globalThis.onmessage = async ({ data: options }) => {
  try {
    const progress = (...told) => globalThis.postMessage({ progress: told });
    const result = await runBenchmark(options, pageEnvironment(options.threads), progress);
    globalThis.postMessage({ result });
  } catch (error) {
    globalThis.postMessage({ error: String(error?.stack ?? error) });
  }
};
