// One part of the benchmark in Chromium: the page is built, served with cross-origin isolation, without
// which there are no threads, and driven.
import { cpSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "@playwright/test";
import { build } from "vite";
import { serve } from "../scripts/serve.mjs";
import { root, toolchain } from "../scripts/toolchain.mjs";

const folder = join(root, "build/web-bench");

const copied = {
  heed: ["dist"],
  onnxruntime: [
    "node_modules/onnxruntime-web/dist/ort.wasm.min.mjs",
    "node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.mjs",
    "node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm",
  ],
  tensorflow: [
    "node_modules/@tensorflow/tfjs-backend-wasm/dist/tfjs-backend-wasm.wasm",
    "node_modules/@tensorflow/tfjs-backend-wasm/dist/tfjs-backend-wasm-simd.wasm",
    "node_modules/@tensorflow/tfjs-backend-wasm/dist/tfjs-backend-wasm-threaded-simd.wasm",
  ],
};

let building;
function buildPage() {
  building ??= (async () => {
    rmSync(folder, { recursive: true, force: true });
    await build({
      root: join(root, "web_bench/page"),
      configFile: false,
      logLevel: "error",
      worker: { format: "es" },
      build: { outDir: folder, emptyOutDir: true, target: "es2022", chunkSizeWarningLimit: 4096 },
    });
    for (const [name, paths] of Object.entries(copied)) {
      mkdirSync(join(folder, name), { recursive: true });
      for (const path of paths) {
        const to =
          path === "dist" ? join(folder, name) : join(folder, name, path.split("/").at(-1));
        cpSync(join(root, path), to, { recursive: true });
      }
    }
  })();
  return building;
}

/** Calls `work(browser, address)` with a browser and the served page's address. */
async function withBrowser(work) {
  const executablePath = toolchain().chromium;
  if (!executablePath) throw new Error("no Chromium found: HEED_CHROMIUM names one");
  await buildPage();
  const server = await serve(folder);
  const browser = await chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic"],
  });
  try {
    return await work(browser, server.url);
  } finally {
    await browser.close();
    server.close();
  }
}

/** @returns {Promise<{place: "chromium", engine: string, result: object}>} */
export function inChromium(options, progress) {
  return withBrowser(async (browser, address) => {
    const page = await browser.newPage();
    await page.exposeFunction("tellProgress", progress);
    await page.goto(address);
    const result = await page.evaluate((given) => globalThis.runBenchmark(given), options);
    return { place: "chromium", engine: `Chromium ${browser.version()}`, result };
  });
}

/** `times` cold starts, each in a profile that has nothing in its caches. */
export function coldStartsInChromium(threads, times) {
  return withBrowser(async (browser, address) => {
    const starts = [];
    for (let n = 0; n < times; n++) {
      const context = await browser.newContext();
      const page = await context.newPage();
      await page.goto(address);
      starts.push(await page.evaluate((count) => globalThis.coldStart(count), threads));
      await context.close();
    }
    return starts;
  });
}
