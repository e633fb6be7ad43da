// The packages as Node finds them. One process has one thread count: onnxruntime-web fixes it when the
// first session is made.
import { createRequire } from "node:module";
import { dirname } from "node:path";

const once = (make) => {
  let made;
  return () => {
    made ??= make();
    return made;
  };
};

/** @returns {import("./run.mjs").Environment & {dispose(): void}} */
export function nodeEnvironment(threads) {
  const instances = new Map();
  return {
    place: "node",
    threads,
    heed: (simd) => {
      if (!instances.has(simd)) {
        const loading = import("../dist/node.js").then(({ load }) => load({ threads, simd }));
        instances.set(simd, loading);
      }
      return instances.get(simd);
    },
    onnxWeb: once(async () => {
      const ort = await import("onnxruntime-web");
      ort.env.wasm.numThreads = threads;
      ort.env.logLevel = "error";
      return ort;
    }),
    onnxNode: once(async () => (await import("onnxruntime-node")).default),
    tensorflow: once(async () => {
      const require = createRequire(import.meta.url);
      // Node finds two forms of its core, and a back end registers itself with one of them.
      const tf = require("@tensorflow/tfjs-core");
      const wasm = require("@tensorflow/tfjs-backend-wasm");
      wasm.setWasmPaths(`${dirname(require.resolve("@tensorflow/tfjs-backend-wasm"))}/`);
      await tf.setBackend("wasm");
      await tf.ready();
      return tf;
    }),
  };
}
