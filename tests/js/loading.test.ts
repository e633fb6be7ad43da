import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Worker, type WorkerOptions } from "node:worker_threads";
import { type LoadOptions, load, VERSION } from "heed";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NODE_THREAD, node, nodeTraining } from "../../bindings/src/node_platform.js";
import { choose } from "../../dist/choose.js";
import { fullFiles } from "../../dist/full_files.js";
import { load as loadOnWeb } from "../../dist/index.js";
import { makeLoad } from "../../dist/load.js";
import { trainingFiles } from "../../dist/training_files.js";
import { openTraining } from "../../dist/training_load.js";
import { BUILD_ID } from "../../dist/wasm/build_id.js";
import { compileUrl } from "../../dist/wasm_file.js";
import { withSection } from "../../scripts/build_id.mjs";
import { expectError, expectRejection, root } from "./support.js";

const file = `${root}dist/wasm/heed-simd.wasm`;
const bytes = readFileSync(file);
const HTML = "<!DOCTYPE html><title>Not found</title>";

let server: Server;
let address: string;

/** A server with the mistakes that servers make. */
beforeAll(async () => {
  const answers: Record<string, [number, string, string | Uint8Array]> = {
    "/good.wasm": [200, "application/wasm", bytes],
    "/mime.wasm": [200, "application/octet-stream", bytes],
    "/html.wasm": [200, "text/html", HTML],
    "/truncated.wasm": [200, "application/wasm", bytes.subarray(0, 1000)],
    "/truncated-mime.wasm": [200, "", bytes.subarray(0, 1000)],
    "/empty.wasm": [200, "", ""],
  };
  server = createServer((request, response) => {
    const [status, type, body] = answers[request.url ?? ""] ?? [404, "text/html", HTML];
    response.writeHead(status, type === "" ? {} : { "content-type": type }).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => server.close());

describe("load", () => {
  it.each([
    ["bytes", { wasmBinary: bytes }],
    ["an ArrayBuffer", { wasmBinary: Uint8Array.from(bytes).buffer }],
    ["a compiled module", { module: new WebAssembly.Module(bytes) }],
    ["a file URL", { wasmUrl: pathToFileURL(file) }],
    [
      "a function of the file's name",
      {
        simd: "plain",
        threads: 1,
        wasmUrl: (name: string) => pathToFileURL(`${root}dist/wasm/${name}`),
      },
    ],
  ] as [string, LoadOptions][])("takes %s", async (_, options) => {
    const heed = await load(options);
    expect(heed.variant).toBe("simd");
    expect(heed.attention([[1]], [[1]], [[5]]).output.toNested()).toEqual([[5]]);
  });

  it.each(["/good.wasm", "/mime.wasm"])("fetches %s", async (path) => {
    expect((await load({ wasmUrl: `${address}${path}` })).variant).toBe("simd");
  });

  it.each([
    ["/html.wasm", ["got HTML", "/html.wasm"]],
    ["/missing.wasm", ["404", "/missing.wasm"]],
    ["/truncated.wasm", ["could not be compiled"]],
    ["/truncated-mime.wasm", ["could not be compiled"]],
    ["/empty.wasm", ["0 bytes"]],
  ])("explains what is wrong with %s", async (path, words) => {
    await expectRejection("wasm-load", words, () => load({ wasmUrl: `${address}${path}` }));
  });

  it("says what to do where a bundler for servers wrote a path instead of an address", async () => {
    // What Turbopack and webpack make of `new URL("x.wasm", import.meta.url)` there.
    const path = "/_next/static/media/heed-simd.wasm";
    const relative = { href: path, protocol: "", toString: () => path } as URL;
    const words = [path, 'serverExternalPackages: ["heed"]'];
    const platform = {} as Parameters<typeof compileUrl>[1];
    await expectRejection("wasm-load", words, () => compileUrl(relative, platform));
  });

  it("explains a server that is not there, and a file that is not there", async () => {
    await expectRejection("wasm-load", ["could not be fetched"], () =>
      load({ wasmUrl: "http://127.0.0.1:1/x.wasm" }),
    );
    const wasmUrl = pathToFileURL(`${root}dist/wasm/none.wasm`);
    await expectRejection("wasm-load", ["could not be read"], () => load({ wasmUrl }));
  });

  it("refuses a file of another variant, of another version, and of another program", async () => {
    const wasmBinary = readFileSync(`${root}dist/wasm/heed-reference.wasm`);
    await expectRejection("wasm-load", ["reference", "expected simd"], () => load({ wasmBinary }));
    const stale = Buffer.from(bytes);
    stale[stale.indexOf(`simd ${VERSION}`) + "simd ".length] = "9".charCodeAt(0);
    await expectRejection("wasm-load", [`9${VERSION.slice(1)}`, VERSION], () =>
      load({ wasmBinary: stale }),
    );
    const foreign = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0);
    await expectRejection("wasm-load", ["something else"], () => load({ wasmBinary: foreign }));
  });

  it("refuses a file of another build of the same version, which a cache may have kept", async () => {
    expect(BUILD_ID).toMatch(/^[0-9a-f]{16}$/);
    const stale = Buffer.from(bytes);
    stale.write("0123456789abcdef", stale.lastIndexOf(BUILD_ID));
    const words = ["build 0123456789abcdef", `build ${BUILD_ID}`, "a stale copy"];
    await expectRejection("wasm-load", words, () => load({ wasmBinary: stale }));
    const unmarked = bytes.subarray(0, bytes.lastIndexOf("heed.build") - 3);
    await expectRejection("wasm-load", ["build unknown"], () => load({ wasmBinary: unmarked }));
  });

  it("explains a file whose imports are not those of the glue", async () => {
    const label = Buffer.from(`\0\x0f\x04heedsimd ${VERSION}`, "latin1");
    const bare = Buffer.concat([Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0), label]);
    const wasmBinary = withSection(bare, BUILD_ID);
    await expectRejection("wasm-load", ["does not fit"], () => load({ wasmBinary }));
  });

  it.each([
    ["option", "threads", { threads: "many" }],
    ["range", "threads", { threads: 0 }],
    ["range", "threads", { threads: 1.5 }],
    ["range", "threads", { threads: NaN }],
    ["range", "threads", { threads: 1e6 }],
    ["option", "simd", { simd: "fast" }],
    ["option", "did you mean `threads`", { thread: 1 }],
    ["option", "wasmUrl", { wasmUrl: "no address" }],
    ["option", "wasmBinary", { wasmBinary: "bytes" }],
    ["option", "module", { module: {} }],
  ] as const)("refuses with %s: %s", async (code, word, options) => {
    await expectRejection(code, [word], () => load(options as unknown as LoadOptions));
  });

  it("gives each caller an instance of its own", async () => {
    const [one, two] = await Promise.all([load({ threads: 1 }), load({ threads: 1 })]);
    const tensor = one.tensor([1], [1]);
    expect([one.memory().tensors, two.memory().tensors]).toEqual([1, 0]);
    one.dispose();
    expect(tensor.disposed).toBe(true);
    expect(two.attention([[1]], [[1]], [[2]]).output.toNested()).toEqual([[2]]);
  });

  it("works from the web entry where that runs in Node (server-side bundles)", async () => {
    const heed = await loadOnWeb();
    expect(heed.threads).toBe(1);
    expect(heed.reasons.threads).toContain("cross-origin isolated");
    const { output } = await heed.reference("scaled_dot_product", { q: [[1]], k: [[1]], v: [[3]] });
    expect(output.toNested()).toEqual([[3]]);
  });

  it("leaves the globals alone on import", async () => {
    const before = Object.getOwnPropertyNames(globalThis).length;
    await import("../../dist/index.js");
    expect(Object.getOwnPropertyNames(globalThis).length).toBe(before);
  });
});

describe("JavaScript that cannot be fetched", () => {
  it("is what the error is about, not the WebAssembly", async () => {
    const gone = () => Promise.reject(new TypeError("error loading the module"));
    const none = { "simd-threads": gone, "relaxed-threads": gone };
    const files = { ...fullFiles, simd: { ...fullFiles.simd, glue: gone } };
    const open = makeLoad(node("full", files, none));
    const words = [
      "the JavaScript of heed-simd.wasm could not be loaded",
      "error loading the module",
    ];
    await expectRejection("wasm-load", words, () => open({ simd: "plain", threads: 1 }));
  });
});

describe("threads that cannot be used", () => {
  /** Glue whose module refuses threads, and how often its workers were stopped. */
  function refusing(name: string) {
    const stopped = { count: 0 };
    const glue = async () => {
      const { default: factory } = await import(`../../dist/wasm/${name}.node.mjs`);
      const make = async (settings: Record<string, unknown>) => {
        const module = await factory(settings);
        const stop = module.PThread.terminateAllThreads.bind(module.PThread);
        module.PThread.terminateAllThreads = () => {
          stopped.count++;
          stop();
        };
        module.setThreads = () => ({ code: "memory", message: "no threads" });
        return module;
      };
      return { default: make };
    };
    const newThread = () =>
      new Worker(
        new URL(`../../dist/wasm/${name}.node.mjs`, import.meta.url),
        NODE_THREAD as WorkerOptions,
      );
    const file = { glue, newThread: newThread as unknown as () => globalThis.Worker };
    return { stopped, glue: { "simd-threads": file, "relaxed-threads": file } };
  }
  const wish = { simd: "plain", threads: 2 } as const;

  it("are told of where their file is missing, and nothing is thrown elsewhere", async () => {
    const newThread = () => new Worker(new URL("./none.mjs", import.meta.url)) as unknown;
    const file = {
      glue: () => import("../../dist/wasm/heed-simd-threads.node.mjs"),
      newThread: newThread as () => globalThis.Worker,
    };
    const open = makeLoad(
      node("full", fullFiles, { "simd-threads": file, "relaxed-threads": file }),
    );
    const words = ["threads: a worker could not start", "none.mjs"];
    await expectRejection("unsupported", words, () => open(wish));
    const one = await open({ ...wish, threads: 1 });
    expect(one.threads).toBe(1);
  });

  it("are stopped: heed", async () => {
    const { stopped, glue } = refusing("heed-simd-threads");
    const open = makeLoad(node("full", fullFiles, glue));
    await expectRejection("memory", ["no threads"], () => open(wish));
    expect(stopped.count).toBe(1);
  });

  it("are stopped: heed/training", async () => {
    const { stopped, glue } = refusing("heed-training-simd-threads");
    const platform = nodeTraining(trainingFiles, glue);
    await expectRejection("memory", ["no threads"], () => openTraining(platform, wish));
    expect(stopped.count).toBe(1);
  });
});

describe("in a Node without process.getBuiltinModule (22.0 to 22.2)", () => {
  it("reads its files and counts the hardware threads", () => {
    const script = `process.getBuiltinModule = undefined;
      Object.defineProperty(globalThis, "navigator", { value: { hardwareConcurrency: 3 } });
      const { load } = await import(${JSON.stringify(pathToFileURL(`${root}dist/node.js`))});
      const heed = await load();
      console.log(heed.threads, heed.reasons.threads);
      heed.dispose();`;
    const folder = mkdtempSync(join(tmpdir(), "heed-loading-"));
    try {
      writeFileSync(join(folder, "run.mjs"), script);
      const printed = execFileSync(process.execPath, [join(folder, "run.mjs")], {
        encoding: "utf8",
        timeout: 60_000,
      });
      expect(printed.trim()).toBe("3 3 hardware threads");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe("the choice of a variant", () => {
  const all = { simd: true, relaxed: true, threads: true };
  const many = { count: 8, reason: "8 hardware threads" };
  const one = { count: 1, reason: "not isolated" };
  const auto = { threads: "auto", simd: "auto", ownFile: false } as const;
  const variants = (...given: Parameters<typeof choose>) =>
    choose(...given).map(({ variant, threads }) => `${variant} ${threads}`);

  it("takes the best and falls back step by step", () => {
    expect(variants(auto, all, many)).toEqual(["relaxed-threads 8", "relaxed 1", "simd 1"]);
    expect(variants(auto, { ...all, relaxed: false }, many)).toEqual(["simd-threads 8", "simd 1"]);
    expect(variants(auto, all, one)).toEqual(["relaxed 1", "simd 1"]);
    expect(variants(auto, { ...all, threads: false }, many)).toEqual(["relaxed 1", "simd 1"]);
    expect(variants({ ...auto, ownFile: true }, all, many)).toEqual(["simd 1"]);
  });

  it("does not give up threads that were asked for, nor says so where there were none", () => {
    const asked = { ...auto, threads: 2 };
    expect(variants(asked, all, many)).toEqual(["relaxed-threads 2", "simd-threads 2"]);
    const reasons = choose(auto, all, one).map((choice) => choice.reasons.threads);
    expect(reasons).toEqual(["not isolated", "not isolated"]);
  });

  it("does what it was told, and says why it could not", () => {
    expect(variants({ ...auto, threads: 3, simd: "plain" }, all, many)).toEqual(["simd-threads 3"]);
    const [single] = choose({ ...auto, threads: 4 }, all, one);
    expect(single).toMatchObject({ threads: 1, reasons: { threads: "not isolated" } });
    const hidden = choose(auto, { ...all, threads: false }, one);
    expect(hidden[0]?.reasons.threads).toBe("not isolated");
    expectError("unsupported", ["relaxed"], () =>
      choose({ ...auto, simd: "relaxed" }, { ...all, relaxed: false }, one),
    );
    expectError("unsupported", ["Safari 16.4"], () =>
      choose(auto, { simd: false, relaxed: false, threads: false }, one),
    );
  });
});
