import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import { publint } from "publint";
import { afterAll, beforeAll, describe, expect, it, test } from "vitest";
import { toolchain } from "../../scripts/toolchain.mjs";
import { removeUnread } from "../../scripts/unread.mjs";
import { filesIn, fixtures, installPacked, runIn, tarballIn } from "./packed.js";
import { expectClose, root } from "./support.js";

let packed: ReturnType<typeof installPacked>;
let folder: string;

beforeAll(() => {
  packed = installPacked();
  ({ folder } = packed);
});
afterAll(() => packed?.remove());

const installed = (path: string): string => join(folder, "node_modules/heed", path);

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

  it("has no fault that publint knows, nor a type that resolves wrongly", async () => {
    const { messages } = await publint({ pkgDir: installed("."), strict: true });
    expect(messages).toEqual([]);
    const attw = `${root}node_modules/@arethetypeswrong/cli/dist/index.js`;
    const options = ["--profile", "esm-only", "--format", "json"];
    const said = runIn(folder, process.execPath, attw, tarballIn(folder), ...options);
    const { analysis } = JSON.parse(said);
    expect(Object.keys(analysis.entrypoints)).toContain("./worker");
  });

  it("is the same bytes each time it is packed", () => {
    const again = join(folder, "again");
    mkdirSync(again);
    runIn(root, "npm", "pack", "--ignore-scripts", "--pack-destination", again);
    const [first, second] = [folder, again].map((at) => readFileSync(join(at, tarballIn(at))));
    expect(second?.equals(first as Buffer)).toBe(true);
  });

  it("holds these files and no others", () => {
    const variants = ["", "core-", "gradients-", "training-"].flatMap((build) =>
      ["simd", "relaxed"].flatMap((simd) =>
        ["", "-threads"].map((t) => `heed-${build}${simd}${t}`),
      ),
    );
    const modules = [...variants, "heed-reference"];
    const glue = variants.filter((name) => name.endsWith("-threads")).map((name) => `${name}.node`);
    const wasm = [
      ...modules.map((name) => `${name}.wasm`),
      ...[...modules, ...glue, "heed-simd.inline"].map((name) => `${name}.mjs`),
      "build_id.js",
      "heed-simd.bytes.js",
      "heed-simd.d.mts",
    ];
    const isShared = (name: string) => /^node_shared_\w{8}\.js$/.test(name);
    const compiled = filesIn(installed("dist")).filter((name) => !/^wasm($|\/)/.test(name));
    const texts = [
      ...filesIn(`${root}docs`)
        .filter((name) => /^\w+\.md$/.test(name))
        .map((name) => `docs/${name}`),
      ...filesIn(`${root}examples`).map((name) => `examples/${name}`),
      ...["native_bench", "web_bench"].map((name) => `${name}/README.md`),
    ];
    const expected = [
      ...texts,
      ...["CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "package.json"],
      ...[...compiled, ...wasm.map((name) => `wasm/${name}`)].map((name) => `dist/${name}`),
    ];
    const isFile = (name: string) => statSync(installed(name)).isFile();
    const files = filesIn(installed(".")).filter(isFile);
    expect(files).toEqual(expected.sort());
    expect(compiled.filter(isShared).length).toBeLessThan(8);
    const sources = filesIn(`${root}bindings/src`);
    for (const name of compiled.filter((each) => !isShared(each))) {
      expect(sources).toContain(name.replace(/(\.d\.ts|\.js)$/, ".ts"));
    }
  });

  it("has every page that its own first pages lead to", () => {
    for (const page of ["README.md", "CHANGELOG.md"]) {
      const links = readFileSync(installed(page), "utf8").matchAll(/\]\((?!\w+:)([^)#]+)/g);
      const paths = [...links].map(([, path]) => path as string);
      expect(paths.length, page).toBeGreaterThan(0);
      expect(paths.filter((path) => !existsSync(installed(path)))).toEqual([]);
    }
  });

  it("is less than 8 MB to download", () => {
    expect(statSync(join(folder, tarballIn(folder))).size).toBeLessThan(8e6);
  });

  it("holds no script and no types that none of its entry points reads", () => {
    const { exports } = JSON.parse(readFileSync(installed("package.json"), "utf8"));
    const dist = join(folder, "dist");
    cpSync(installed("dist"), dist, { recursive: true });
    expect(removeUnread(dist, exports)).toEqual([]);
    writeFileSync(join(dist, "stray.js"), 'import "./index.js";\n');
    expect(removeUnread(dist, exports)).toEqual(["stray.js"]);
  });

  it("says nothing of the machine that it was built on", () => {
    const machine = [root, homedir(), "/tmp/"].map((path) => path.replace(/\/$/, ""));
    for (const name of filesIn(installed("dist/wasm"))) {
      const text = readFileSync(installed(`dist/wasm/${name}`), "latin1");
      for (const path of machine) expect(text.includes(`${path}/`), `${name}: ${path}`).toBe(false);
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
});

/** The files that an entry point of the package reads before it runs. */
function readBy(entry: string, found = new Set<string>()): Set<string> {
  if (found.has(entry)) return found;
  found.add(entry);
  const text = readFileSync(installed(`dist/${entry}`), "utf8");
  const imports = text.matchAll(/^(?:import|export|\}) ?(?:[^"';()]*from )?"\.\/([\w/]+\.js)"/gm);
  for (const [, name] of imports) readBy(name as string, found);
  return found;
}

describe("entry points for Node", () => {
  const entries = ["node", "node_core", "node_gradients", "node_training", "node_worker"];

  it.each(entries)("%s is a few files, which Node opens one by one", (name) => {
    const files = readBy(`${name}.js`);
    expect(files).toContain("errors.js");
    expect(files.size).toBeLessThan(name === "node" ? 3 : 9);
  });

  it("throw errors of one class, as heed/inline does", () => {
    const names = [
      "heed",
      ...["core", "gradients", "training", "worker", "inline"].map((n) => `heed/${n}`),
    ];
    const loaded = names.map((name) => `(await import("${name}")).HeedError`);
    const script = `console.log(new Set([${loaded}]).size)`;
    expect(runIn(folder, process.execPath, "--input-type=module", "-e", script).trim()).toBe("1");
  });
});

describe("entry points for browsers", () => {
  const glueOf = (build: string): string[] =>
    ["relaxed", "relaxed-threads", "simd", "simd-threads"].map(
      (name) => `heed-${build}${name}.mjs`,
    );
  const reference = "heed-reference.mjs";

  it.each([
    ["browser", [], [...glueOf(""), reference]],
    ["browser_core", [], [...glueOf("core-"), reference]],
    ["browser_gradients", [], [...glueOf("gradients-"), reference]],
    ["browser_training", [], glueOf("training-")],
    ["browser_worker", ["browser_worker_script.js"], []],
    ["browser_worker_script", [], [...glueOf(""), reference]],
  ])("%s is one file, which names a worker's or the glue and no other", (name, scripts, glue) => {
    const text = readFileSync(installed(`dist/${name}.js`), "utf8");
    const named = [...text.matchAll(/["'`](\.\.?\/[^"'`]*)["'`]/g)].map(
      ([, path]) => path as string,
    );
    const files = [...new Set(named)].sort();
    expect(files.filter((path) => path.endsWith(".js"))).toEqual(
      scripts.map((file) => `./${file}`),
    );
    const modules = glue.map((file) => `./wasm/${file}`).sort();
    expect(files.filter((path) => path.endsWith(".mjs"))).toEqual(modules);
    for (const file of files) expect(existsSync(installed(`dist/${file}`)), file).toBe(true);
    // Neither a name of another package.
    expect(text).not.toMatch(/\bfrom ?["'`]|\bimport ?["'`]|\bimport\(["'`][^.]/);
  });

  it("know each other's errors, and no others", () => {
    const address = (name: string) => JSON.stringify(pathToFileURL(installed(`dist/${name}.js`)));
    const script = `
      const { HeedError } = await import(${address("browser")});
      const { HeedError: Other } = await import(${address("browser_training")});
      class Narrower extends HeedError {}
      const of = (error) => [HeedError, Other, Narrower].map((type) => error instanceof type);
      const errors = [new HeedError("range", ""), new Other("range", ""), new Narrower("range", "")];
      const others = [new Error(), { name: "HeedError" }, null, undefined, "HeedError"];
      console.log(JSON.stringify([HeedError === Other, errors.map(of), others.map(of).flat()]));`;
    const said = runIn(folder, process.execPath, "--input-type=module", "-e", script);
    const [same, errors, others] = JSON.parse(said);
    expect(same).toBe(false);
    expect(errors).toEqual([
      [true, true, false],
      [true, true, false],
      [true, true, true],
    ]);
    expect(others).not.toContain(true);
  });
});

/** This Node, and what the set-up provides; tests of what it could not provide are skipped. */
const { node24, bun, deno } = toolchain();
const runtimes: [string, string | null, string[]][] = [
  [`Node ${process.versions.node}`, process.execPath, []],
  ["Node 22 or newer", node24, []],
  ["Bun", bun, ["run"]],
  ["Deno", deno, ["run", "--no-prompt", "--allow-read"]],
];

describe.each(runtimes)("in %s", (_, program, args) => {
  const it = test.skipIf(program === null);
  const runFixture = (name: string) => {
    cpSync(`${fixtures}/node/${name}`, join(folder, name));
    return JSON.parse(runIn(folder, program as string, ...args, name));
  };

  it("import attends", () => {
    const { output, exact, code } = runFixture("run.mjs");
    expectClose("output", output.flat(), exact.flat(), 1e-6);
    expect(code).toBe("option");
  });

  it("require() gives what import() gives", () => {
    expect(runFixture("run.cjs")).toMatchObject({ same: true });
  });

  it("a worker attends with all cores, and lets the process end", () => {
    const { threads, value } = runFixture("worker.mjs");
    expect(value).toBeCloseTo(0.731, 3);
    expect(threads).toBeGreaterThanOrEqual(1);
  });

  it("heed/inline attends", () => {
    expect(runFixture("inline.mjs")).toEqual({ variant: "simd", value: expect.closeTo(0.731, 3) });
  });
});
