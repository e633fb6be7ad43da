import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { load } from "heed";
import { describe, expect, it } from "vitest";
import { root } from "./support.js";

/** Compiles files as a strict user with these libraries would; the package's types are checked too. */
const compile = (file: string, ...options: string[]): string =>
  compileAll([`tests/js/types/${file}`], ...options);

function compileAll(files: readonly string[], ...options: string[]): string {
  const compiler = `${root}node_modules/typescript/bin/tsc`;
  const strict = [
    "--noEmit",
    "--strict",
    "--exactOptionalPropertyTypes",
    "--skipLibCheck",
    "false",
  ];
  const modules = ["--target", "ES2022"];
  const args = [compiler, ...strict, ...modules, ...options, "--ignoreConfig", ...files];
  try {
    execFileSync(process.execPath, args, { cwd: root, encoding: "utf8" });
    return "";
  } catch (error) {
    return (error as { stdout: string }).stdout;
  }
}

describe("the published types", () => {
  it.each([
    ["nodenext", "NodeNext"],
    ["bundler", "ESNext"],
  ])("say what is present, resolved the %s way, without newer libraries", (resolution, module) => {
    const options = ["--module", module, "--moduleResolution", resolution, "--lib", "ES2022"];
    expect(compile("attention.ts", ...options)).toBe("");
    expect(compile("position.ts", ...options)).toBe("");
    expect(compile("keep.ts", ...options)).toBe("");
    expect(compile("rows.ts", ...options)).toBe("");
    expect(compile("worker.ts", ...options)).toBe("");
    expect(compile("browser.ts", ...options)).toBe("");
  });

  it("work with using, fetch and WebAssembly where the libraries know them", () => {
    const lib = ["--lib", "ES2022,ESNext.Disposable,DOM"];
    expect(compile("using.ts", "--module", "NodeNext", ...lib)).toBe("");
    expect(compile("attention.ts", "--module", "NodeNext", ...lib)).toBe("");
  });
});

/** Later examples of a page go on from what the first one has loaded. */
const OPENING = 'import { load } from "heed";\nconst heed = await load();\n';

it("the first pages that one reads are strict TypeScript as they stand", () => {
  const folder = `${root}build/results/types`;
  mkdirSync(folder, { recursive: true });
  const files = ["README.md", "bindings/reference.md"].flatMap((page) => {
    const examples = readFileSync(root + page, "utf8").matchAll(/```js\n([\s\S]*?)```/g);
    return [...examples].map(([, code = ""], n) => {
      const file = `${folder}/${page.replaceAll(/\W/g, "_")}_${n + 1}.ts`;
      writeFileSync(file, `${code.includes("load(") ? "" : OPENING}${code}\nexport {};\n`);
      return file;
    });
  });
  expect(files.length).toBeGreaterThan(2);
  expect(compileAll(files, "--module", "NodeNext", "--lib", "ES2022,DOM")).toBe("");
});

it("every option of attention in the registry has a type", async () => {
  const heed = await load({ threads: 1 });
  const declared = ["attention", "keep_options"]
    .map((name) => readFileSync(`${root}dist/${name}.d.ts`, "utf8"))
    .join("");
  const { inputs, params } = heed.mechanisms.find(({ id }) => id === "attention") ?? {};
  const optional = inputs?.filter((input) => input.optional).map(({ name }) => name) ?? [];
  // Written as window: { left, right } and dropout: { p, seed }.
  const parts = new Set(["windowLeft", "windowRight", "dropoutP", "dropoutSeed"]);
  const names = [...optional, ...(params ?? [])].filter((name) => !parts.has(name));
  expect(names.length).toBeGreaterThan(60);
  expect(names.filter((name) => !declared.includes(`readonly ${name}?:`))).toEqual([]);
  heed.dispose();
});
