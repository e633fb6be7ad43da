// What the bundlers make of a page of bindings/fixtures, with their defaults.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import nodeResolve from "@rollup/plugin-node-resolve";
import { build as esbuild } from "esbuild";
import { rollup } from "rollup";
import { build as vite } from "vite";
import webpack from "webpack";

/** A page to build: `main.js` in `folder` is its script. Built into `to`. */
export interface Page {
  folder: string;
  to: string;
}

/** Gives the files that it has read. */
export type Bundler = (page: Page) => Promise<string[]>;

export async function bundleWithVite({ folder, to }: Page): Promise<string[]> {
  const read: string[] = [];
  await vite({
    root: folder,
    base: "./",
    configFile: false,
    logLevel: "error",
    build: { outDir: to, emptyOutDir: true },
    plugins: [{ name: "files-read", moduleParsed: ({ id }) => void read.push(id) }],
  });
  return read;
}

export function bundleWithWebpack({ folder, to }: Page): Promise<string[]> {
  const compiler = webpack({
    mode: "production",
    context: folder,
    entry: "./main.js",
    output: { path: to, filename: "main.js" },
    // What is tested does not depend on it, and takes most of the time.
    optimization: { minimize: false },
  });
  copyHtml(folder, to);
  return new Promise((resolve, reject) => {
    compiler.run((error, stats) => {
      const problem = error ?? stats?.toJson({ all: false, errors: true }).errors?.[0]?.message;
      const read = [...(stats?.compilation.fileDependencies ?? [])];
      compiler.close(() => (problem ? reject(new Error(String(problem))) : resolve(read)));
    });
  });
}

export async function bundleWithRollup({ folder, to }: Page): Promise<string[]> {
  const bundle = await rollup({ input: join(folder, "main.js"), plugins: [nodeResolve()] });
  await bundle.write({ dir: to, format: "es" });
  await bundle.close();
  copyHtml(folder, to);
  copyWasm(folder, to);
  return bundle.watchFiles;
}

export async function bundleWithEsbuild({ folder, to }: Page): Promise<string[]> {
  const { metafile } = await esbuild({
    entryPoints: [join(folder, "main.js")],
    bundle: true,
    splitting: true,
    format: "esm",
    outdir: to,
    logLevel: "error",
    metafile: true,
  });
  copyHtml(folder, to);
  copyWasm(folder, to);
  return Object.keys(metafile.inputs);
}

/** Rollup and esbuild leave addresses as they are: the files have to lie beside the bundle. */
function copyWasm(folder: string, to: string): void {
  const from = join(folder, "../node_modules/heed/dist/wasm");
  const filter = (file: string) => !file.endsWith(".node.mjs");
  cpSync(from, join(to, "wasm"), { recursive: true, filter });
}

function copyHtml(folder: string, to: string): void {
  mkdirSync(to, { recursive: true });
  writeFileSync(join(to, "index.html"), readFileSync(join(folder, "index.html"), "utf8"));
}

/** One classic script; each import of a `.wasm` file is what the host put into `modules`. */
export async function bundleForEdge(script: string): Promise<string> {
  const { outputFiles } = await esbuild({
    entryPoints: [script],
    bundle: true,
    write: false,
    format: "iife",
    globalName: "worker",
    conditions: ["workerd", "worker", "browser"],
    logLevel: "error",
    logOverride: { "empty-import-meta": "silent" },
    plugins: [
      {
        name: "compiled-wasm",
        setup(build) {
          build.onResolve({ filter: /\.wasm$/ }, ({ path }) => ({ path, namespace: "wasm" }));
          build.onLoad({ filter: /.*/, namespace: "wasm" }, ({ path }) => ({
            contents: `export default modules[${JSON.stringify(path)}];`,
          }));
        },
      },
    ],
  });
  return outputFiles[0]?.text ?? "";
}

/** A module of JavaScript alone; its imports of `.wasm` files stay, and the runtime answers them. */
export async function bundleForWorkerd(script: string): Promise<string> {
  const { outputFiles } = await esbuild({
    entryPoints: [script],
    bundle: true,
    write: false,
    format: "esm",
    conditions: ["workerd", "worker", "browser"],
    external: ["*.wasm"],
    logLevel: "error",
  });
  return outputFiles[0]?.text ?? "";
}
