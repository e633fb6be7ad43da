// The packed package in pages: built by bundlers or by none, under a strict policy, with and without
// cross-origin isolation, in workers, and where nothing may be compiled.
import { cpSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import vm from "node:vm";
import type { Browser } from "@playwright/test";
import { createServer } from "vite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { serve } from "../../scripts/serve.mjs";
import {
  type Bundler,
  bundleForEdge,
  bundleWithEsbuild,
  bundleWithRollup,
  bundleWithVite,
  bundleWithWebpack,
} from "./bundle.js";
import { launch, showPage, showUrl } from "./chromium.js";
import { filesIn, fixtures, installPacked } from "./packed.js";

const NEAR = expect.closeTo(0.731, 3);
let packed: ReturnType<typeof installPacked>;
let browser: Browser;

beforeAll(async () => {
  packed = installPacked();
  browser = await launch();
});
afterAll(async () => {
  await browser?.close();
  packed?.remove();
});

/** A folder with the fixture page, whose main.js is `script`, with heed's entry replaced. */
function makePage(name: string, script: string, entry = "heed"): string {
  const folder = join(packed.folder, name);
  cpSync(`${fixtures}/page`, folder, { recursive: true });
  const main = readFileSync(join(folder, script), "utf8");
  writeFileSync(join(folder, "main.js"), main.replace('"heed"', JSON.stringify(entry)));
  return folder;
}

async function build(bundler: Bundler, name: string, script: string, entry?: string) {
  const folder = makePage(name, script, entry);
  const to = join(folder, "dist");
  await bundler({ folder, to });
  return to;
}

/** The names of heed's own files among some paths. */
const ofHeed = (paths: string[]): string[] =>
  paths.flatMap((path) => /\/heed\/dist\/(\w+\.js)$/.exec(path)?.[1] ?? []);

const scriptsIn = (folder: string): string =>
  filesIn(folder)
    .filter((name) => /\.m?js$/.test(name))
    .map((name) => readFileSync(join(folder, name), "utf8"))
    .join("\n");

const wasmIn = (folder: string): string[] =>
  filesIn(folder)
    .filter((name) => name.endsWith(".wasm"))
    .map((name) => name.replace(/^.*\//, ""));

describe.each([
  ["Vite", bundleWithVite],
  ["webpack", bundleWithWebpack],
  ["Rollup", bundleWithRollup],
  ["esbuild", bundleWithEsbuild],
])("%s", (tool, bundler) => {
  it("builds a page that attends under a strict policy", async () => {
    const to = await build(bundler, `${tool}-page`, "main.js");
    const { result, complaints } = await showPage(browser, to, "", true);
    expect(complaints).toEqual([]);
    expect(result).toMatchObject({ threads: 1, value: NEAR });
    expect(scriptsIn(to)).not.toMatch(/require\("|node:fs["`]|worker_threads/);
  });

  it.each(["heed", "heed/core", "heed/training"])(
    "takes what it needs of %s's modules",
    async (entry) => {
      const folder = makePage(`${tool}-${entry.slice(5)}-modules`, "main.js", entry);
      const read = ofHeed(await bundler({ folder, to: join(folder, "dist") }));
      expect(read).toContain("errors.js");
      expect(read.filter((name) => /^(browser|node)/.test(name))).toEqual([]);
    },
  );

  it("builds a page with heed inside its script, and no file beside it", async () => {
    const folder = makePage(`${tool}-inline`, "inline.js");
    const to = join(folder, "dist");
    await bundler({ folder, to });
    if (tool === "Vite" || tool === "webpack") expect(wasmIn(to)).toEqual([]);
    const { result, complaints } = await showPage(browser, to, "", false);
    expect(complaints).toEqual([]);
    expect(result).toEqual({ variant: "simd", value: NEAR });
  });
});

describe.each([
  ["Vite", bundleWithVite],
  ["webpack", bundleWithWebpack],
])("workers that %s builds", (tool, bundler) => {
  it("use all cores where the page is isolated, and one where it is not", async () => {
    const to = await build(bundler, `${tool}-workers`, "workers.js");
    const { result: isolated, complaints } = await showPage(browser, to, "", true);
    expect(complaints).toEqual([]);
    const cores = isolated.cores as number;
    const threaded = { threads: cores, value: NEAR };
    expect(isolated).toEqual({ isolated: true, cores, own: threaded, spawned: threaded });
    const single = { threads: 1, value: NEAR };
    const { result: plain } = await showPage(browser, to, "", false);
    expect(plain).toEqual({ isolated: false, cores, own: single, spawned: single });
  });
});

describe("Vite", () => {
  it.each([
    ["heed", "heed-", ["heed-reference"]],
    ["heed/core", "heed-core-", ["heed-reference"]],
    ["heed/gradients", "heed-gradients-", ["heed-reference"]],
    ["heed/training", "heed-training-", []],
  ])("ships the WebAssembly of %s and no other", async (entry, prefix, others) => {
    const to = await build(bundleWithVite, `vite-${prefix}files`, "main.js", entry);
    const kernels = ["simd", "relaxed", "simd-threads", "relaxed-threads"];
    const modules = [...kernels.map((variant) => prefix + variant), ...others];
    expect(
      wasmIn(to)
        .map((name) => name.replace(/-[\w-]{8}\.wasm$/, ""))
        .sort(),
    ).toEqual(modules.sort());
  });

  // A server that finds a package late answers a worker with 504 once, and then has the page loaded again.
  it("serves a page while it is written, with its worker", { retry: 1 }, async () => {
    const folder = makePage("vite-dev", "workers.js");
    const server = await createServer({
      root: folder,
      configFile: false,
      logLevel: "error",
      server: { port: 0, host: "127.0.0.1", watch: null, hmr: false },
      cacheDir: join(folder, ".vite"),
    });
    try {
      await server.listen();
      const { result } = await showUrl(browser, server.resolvedUrls?.local[0] ?? "");
      const single = { threads: 1, value: NEAR };
      expect(result).toMatchObject({ own: single, spawned: single });
    } finally {
      await server.close();
    }
  });
});

describe.each([
  ["files for browsers", { "heed/worker": "browser_worker", heed: "browser" }],
  ["modules", { "heed/worker": "worker", heed: "index" }],
])("a page without a bundler, of %s", (kind, files) => {
  /** The package lies beside the page; bare names become paths. */
  function makePlainPage(script: string): string {
    const folder = makePage(`plain-${kind}-${script}`, script);
    cpSync(join(packed.folder, "node_modules/heed"), join(folder, "heed"), { recursive: true });
    for (const name of ["main.js", "own_worker.js"]) {
      let text = readFileSync(join(folder, name), "utf8");
      for (const [entry, file] of Object.entries(files)) {
        text = text.replace(`"${entry}"`, `"./heed/dist/${file}.js"`);
      }
      writeFileSync(join(folder, name), text);
    }
    return folder;
  }

  it("attends under a strict policy, with one thread on its main thread", async () => {
    const folder = makePlainPage("main.js");
    for (const isolated of [true, false]) {
      const { result, complaints } = await showPage(browser, folder, "", isolated);
      expect(complaints).toEqual([]);
      expect(result).toMatchObject({ threads: 1, value: NEAR });
      expect((result.reasons as { threads: string }).threads).toContain("must not block");
    }
  });

  it("uses all cores in workers where it is isolated", async () => {
    const folder = makePlainPage("workers.js");
    const { result, complaints } = await showPage(browser, folder, "", true);
    expect(complaints).toEqual([]);
    const threaded = { threads: result.cores, value: NEAR };
    expect(result).toMatchObject({ isolated: true, own: threaded, spawned: threaded });
    const { result: plain } = await showPage(browser, folder, "", false);
    const single = { threads: 1, value: NEAR };
    expect(plain).toMatchObject({ isolated: false, own: single, spawned: single });
  });
});

describe("a page whose heed lies on another origin", () => {
  const anyPage = {
    "Access-Control-Allow-Origin": "*",
    "Cross-Origin-Resource-Policy": "cross-origin",
  };

  /** What a module of a worker in an isolated page of its own says; `$` is where heed lies. */
  async function ask(name: string, script: string) {
    const folder = makePage(`elsewhere-${name}`, "main.js");
    const elsewhere = await serve(join(packed.folder, "node_modules/heed/dist"), 0, {
      sent: anyPage,
    });
    const host = await serve(folder, 0, { sent: {} });
    const main = `import { show } from "./attend.js";
      new Worker("./asks.js", { type: "module" }).onmessage = ({ data }) => show(data);`;
    writeFileSync(join(folder, "main.js"), main);
    const shared = `const failed = (error) => ({ name: error.name, code: error.code, message: error.message });
      const [q, k, v] = [[[1, 0]], [[1, 0], [0, 1]], [[1], [0]]];`;
    writeFileSync(join(folder, "asks.js"), script.replaceAll("$", elsewhere.url) + shared);
    try {
      return (await showUrl(browser, host.url)).result;
    } finally {
      host.close();
      elsewhere.close();
    }
  }

  it("attends with one thread, and is told why it cannot have more", async () => {
    const result = await ask(
      "load",
      `import { load } from "$browser.js";
       Promise.all([load(), load({ threads: 2 }).then(() => "loaded", (error) => failed(error))]).then(([heed, refused]) => {
         const { output } = heed.attention(q, k, v);
         const { threads, reasons } = heed;
         postMessage({ isolated: crossOriginIsolated, threads, reasons, refused, value: output.toNested()[0][0] });
       });`,
    );
    expect(result).toMatchObject({ isolated: true, threads: 1 });
    expect(result.value).toBeCloseTo(0.67, 2);
    expect(result.reasons).toMatchObject({ threads: "the threads could not be started" });
    expect(result.refused).toMatchObject({ name: "HeedError", code: "unsupported" });
    expect((result.refused as Error).message).toContain("may not start workers");
  });

  it("is told why heed's worker does not start", async () => {
    const result = await ask(
      "spawn",
      `import { spawn } from "$browser_worker.js";
       spawn().then(() => postMessage({}), (error) => postMessage(failed(error)));`,
    );
    expect(result).toMatchObject({ name: "HeedError", code: "wasm-load" });
    expect(result.message).toMatch(/the worker could not be started: .*Worker.* origin/);
  });
});

describe("a page from a disk", () => {
  it("attends with heed/inline in a classic script", async () => {
    const to = await build(bundleWithEsbuild, "disk", "inline.js");
    const html = readFileSync(join(to, "index.html"), "utf8");
    writeFileSync(
      join(to, "index.html"),
      html.replace('<script type="module" src', "<script defer src"),
    );
    renameSync(join(to, "main.js"), join(to, "module.js"));
    const { build: esbuild } = await import("esbuild");
    await esbuild({
      entryPoints: [join(to, "module.js")],
      bundle: true,
      format: "iife",
      outfile: join(to, "main.js"),
      logOverride: { "empty-import-meta": "silent" },
    });
    const { result } = await showUrl(browser, pathToFileURL(join(to, "index.html")).href);
    expect(result).toEqual({ variant: "simd", value: NEAR });
  });
});

describe("a worker at the edge", () => {
  it("attends where code may not be compiled and nothing can be fetched", async () => {
    const script = join(packed.folder, "edge.js");
    cpSync(`${fixtures}/edge/worker.js`, script);
    const code = await bundleForEdge(script);
    const name = "heed/wasm/heed-simd.wasm";
    const file = join(packed.folder, "node_modules", "heed/dist/wasm/heed-simd.wasm");
    // What Cloudflare's runtime has, and not: a WorkerGlobalScope, but no location.
    const scope: Record<string, unknown> = {
      modules: { [name]: new WebAssembly.Module(readFileSync(file)) },
      ...{ Response, URL, TextDecoder, TextEncoder, performance, console },
      WorkerGlobalScope: class {},
      navigator: { userAgent: "Cloudflare-Workers" },
    };
    scope.self = scope;
    const context = vm.createContext(scope, { codeGeneration: { strings: false, wasm: false } });
    const refused = "new WebAssembly.Module(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0))";
    expect(() => vm.runInContext(refused, context)).toThrow(/disallowed/);
    vm.runInContext(code, context);
    const response = await vm.runInContext("worker.default.fetch()", context);
    expect(await response.json()).toMatchObject({ variant: "simd", value: NEAR });
  });
});
