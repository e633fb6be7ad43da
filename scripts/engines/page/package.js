// What an application does with the package, in this engine: every variant and every entry.
import { load as loadCore } from "../package/browser_core.js";
import { load as loadGradients } from "../package/browser_gradients.js";
import { load as loadTraining } from "../package/browser_training.js";
import { spawn } from "../package/browser_worker.js";
import { load as loadInline } from "../package/inline.js";
import { checkVariant } from "./mechanisms.js";

const q = [[1, 0]];
const k = [
  [1, 0],
  [0, 1],
];
const v = [[1], [0]];
/** Softmax of 1 / sqrt(2) and 0, its first weight. */
const WANTED = 1 / (1 + Math.exp(-Math.SQRT1_2));

function expectNear(value, what) {
  if (!(Math.abs(value - WANTED) < 1e-6)) throw new Error(`${what}: ${value} is not ${WANTED}`);
  return { value };
}

const inWorker = (options) =>
  new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./package_worker.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }) => {
      worker.terminate();
      if (data.error) reject(new Error(data.error));
      else resolve(data.result);
    };
    worker.onerror = ({ message }) => reject(new Error(`worker: ${message}`));
    worker.postMessage(options);
  });

async function entry(name, loader) {
  const heed = await loader();
  return expectNear(heed.attention(q, k, v).output.toNested()[0][0], name);
}

async function worker() {
  const heed = await spawn();
  const { output } = await heed.attention(q, k, v);
  const { variant, threads, reasons } = heed;
  await heed.dispose();
  return {
    ...expectNear(output.toNested?.()[0][0] ?? output.data[0], "heed/worker"),
    variant,
    threads,
    reasons,
  };
}

async function gradients() {
  const heed = await loadGradients();
  const { output, backward, dispose } = heed.attention.vjp(q, k, v);
  const { v: slope } = backward([[1]]);
  dispose();
  expectNear(slope.toNested()[0][0], "gradient of v");
  return expectNear(output.toNested()[0][0], "heed/gradients");
}

const checks = {
  "plain SIMD": () => checkVariant({ simd: "plain", threads: 1 }),
  "chosen by itself": () => checkVariant({}),
  "plain SIMD, 2 threads": () => inWorker({ simd: "plain", threads: 2 }),
  "a worker, chosen by itself": () => inWorker({}),
  "heed/worker": worker,
  "heed/core": () => entry("heed/core", loadCore),
  "heed/inline": () => entry("heed/inline", loadInline),
  "heed/gradients": gradients,
  "heed/training": async () => ({ variant: (await loadTraining()).variant }),
  "relaxed SIMD": async () => {
    try {
      return await checkVariant({ simd: "relaxed", threads: 1 });
    } catch (error) {
      if (error.code === "unsupported") return { absent: String(error.message) };
      throw error;
    }
  },
};

window.heedChecks = (async () => {
  const results = {};
  for (const [name, check] of Object.entries(checks)) {
    results[name] = await check().catch((error) => ({ error: String(error) }));
  }
  return results;
})();
