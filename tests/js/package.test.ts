import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectClose, root } from "./support.js";

const fixtures = `${root}bindings/fixtures`;
let folder: string;

const runIn = (cwd: string, program: string, ...args: string[]): string =>
  execFileSync(program, args, {
    cwd,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 110_000,
  });

/** An empty folder with the packed package installed in it, and nothing else. */
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "heed-package-"));
  runIn(root, "npm", "pack", "--ignore-scripts", "--pack-destination", folder);
  const tarball = readdirSync(folder).find((name) => name.endsWith(".tgz")) ?? "";
  writeFileSync(join(folder, "package.json"), '{ "private": true, "type": "module" }');
  runIn(folder, "npm", "install", "--no-audit", "--no-fund", "--offline", `./${tarball}`);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const installed = (path: string): string => join(folder, "node_modules/heed", path);

/** Files below a folder, as paths relative to it. */
const filesIn = (path: string): string[] =>
  readdirSync(path, { recursive: true }).map(String).sort();

describe("the packed package", () => {
  it("brings everything it exports, no dependencies and no install scripts", () => {
    const manifest = JSON.parse(readFileSync(installed("package.json"), "utf8"));
    expect(manifest.dependencies).toBeUndefined();
    expect(Object.keys(manifest.scripts ?? {}).filter((name) => name.includes("install"))).toEqual(
      [],
    );
    const targets = JSON.stringify(manifest.exports).match(/\.\/dist\/[\w./-]+\.(js|ts)/g) ?? [];
    expect(targets.length).toBeGreaterThan(2);
    for (const target of targets) expect(readFileSync(installed(target), "utf8")).not.toBe("");
    expect(
      readdirSync(join(folder, "node_modules")).filter((name) => !name.startsWith(".")),
    ).toEqual(["heed"]);
  });

  it("keeps every variant, module and glue, below the limits that package.json states", () => {
    type Limit = { name: string; path: string[]; limit: string };
    const limits: Limit[] = JSON.parse(readFileSync(`${root}package.json`, "utf8"))["size-limit"];
    const wasm = filesIn(installed("dist/wasm")).filter((name) => name.endsWith(".wasm"));
    expect(
      limits
        .flatMap(({ path }) => path)
        .filter((name) => name.endsWith(".wasm"))
        .sort(),
    ).toEqual(wasm.map((name) => `dist/wasm/${name}`));
    for (const { name, path, limit } of limits) {
      const sizes = path.map(
        (file) => gzipSync(readFileSync(installed(file)), { level: 9 }).length,
      );
      const kilobytes = sizes.reduce((sum, size) => sum + size) / 1000;
      expect(kilobytes, name).toBeLessThan(Number.parseFloat(limit));
    }
  });

  it("holds no eval and, in the web entry, nothing of Node", () => {
    const scripts = filesIn(installed("dist")).filter((name) => /\.m?js$/.test(name));
    expect(scripts.length).toBeGreaterThan(20);
    for (const name of scripts) {
      const text = readFileSync(installed(`dist/${name}`), "utf8");
      expect(text, name).not.toMatch(/\beval\(|new Function\b|\bFunction\(/);
      const isForNode = /^node\w*\.js$/.test(name) || name.endsWith(".node.mjs");
      if (!isForNode)
        expect(text, name).not.toMatch(/require\(|from "node:|import\("node:|import\("module"\)/);
    }
  });

  it("attends in Node", () => {
    cpSync(`${fixtures}/node/run.mjs`, join(folder, "run.mjs"));
    const { output, exact, code } = JSON.parse(runIn(folder, process.execPath, "run.mjs"));
    expectClose("output", output.flat(), exact.flat(), 1e-6);
    expect(code).toBe("option");
  });

  it("is found by require() where Node can require modules", () => {
    const script = 'require("heed").load({ threads: 1 }).then((heed) => console.log(heed.simd));';
    writeFileSync(join(folder, "run.cjs"), script);
    const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
    const flags =
      major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19)
        ? []
        : ["--experimental-require-module"];
    expect(runIn(folder, process.execPath, ...flags, "run.cjs")).toMatch(/plain|relaxed/);
  });
});

describe("a Vite page", () => {
  it.each([
    ["heed", "heed-"],
    ["heed/core", "heed-core-"],
  ])("that imports %s builds with its WebAssembly, and no other, as assets", (entry, prefix) => {
    const page = join(folder, prefix);
    cpSync(`${fixtures}/vite`, page, { recursive: true });
    const main = readFileSync(join(page, "main.js"), "utf8");
    writeFileSync(join(page, "main.js"), main.replace('"heed"', JSON.stringify(entry)));
    runIn(
      page,
      process.execPath,
      `${root}node_modules/vite/bin/vite.js`,
      "build",
      "--logLevel",
      "error",
    );
    const files = filesIn(join(page, "dist"));
    const kernels = ["simd", "relaxed", "simd-threads", "relaxed-threads"];
    const modules = [...kernels.map((variant) => prefix + variant), "heed-reference"];
    const built = files.filter((name) => name.endsWith(".wasm"));
    expect(built.map((name) => name.replace(/^.*\/|-[\w-]{8}\.wasm$/g, "")).sort()).toEqual(
      modules.sort(),
    );
    const scripts = files.filter((name) => name.endsWith(".js"));
    const text = scripts.map((name) => readFileSync(join(page, "dist", name), "utf8")).join("");
    expect(text).not.toMatch(/require\("|node:fs"|worker_threads/);
  });
});
