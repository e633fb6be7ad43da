// Every JavaScript example of the README and the docs runs as it is written.
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { root } from "./support.js";

/** What a reader of the page has at hand: a checkpoint, and what goes into a layer. */
const AT_HAND: Readonly<Record<string, string>> = {
  "docs/layers.md": `
    const zeros = (...shape) => ({ data: new Float32Array(shape.reduce((a, b) => a * b)), shape });
    const [x, query, key, value] = [0, 0, 0, 0].map(() => zeros(2, 16, 512));
    const attention = {
      in_proj_weight: zeros(1536, 512), in_proj_bias: zeros(1536),
      "out_proj.weight": zeros(512, 512), "out_proj.bias": zeros(512),
    };
    const below = (prefix, state) =>
      Object.entries(state).map(([name, tensor]) => [prefix + name, tensor]);
    const checkpoint = Object.fromEntries(below("encoder.layers.0.", Object.fromEntries([
      ...below("self_attn.", attention),
      ...["norm1", "norm2"].flatMap((n) => [[n + ".weight", zeros(512)], [n + ".bias", zeros(512)]]),
      ["linear1.weight", zeros(2048, 512)], ["linear1.bias", zeros(2048)],
      ["linear2.weight", zeros(512, 2048)], ["linear2.bias", zeros(512)],
    ])));
    const heads = [4, 16];
    const classifierWeights = {
      embedding: zeros(30000, 64), positionTable: zeros(128, 64), poolQuery: zeros(64),
      wQ: zeros(...heads, 64), wK: zeros(...heads, 64), wV: zeros(...heads, 64),
      wO: zeros(64, ...heads), bQ: zeros(...heads), bK: zeros(...heads), bV: zeros(...heads),
      bO: zeros(64), wClass: zeros(2, 64), bClass: zeros(2),
    };`,
};

/** Sizes that are true in the docs and too large for a test. */
const SMALLER: readonly (readonly [string, string])[] = [
  ["embedDim: 5120", "embedDim: 512"],
  ["numHeads: 128", "numHeads: 4"],
  ["qRank: 1536", "qRank: 24"],
  ["kvRank: 512", "kvRank: 16"],
];
const LATENT = `
    Object.assign(checkpoint, Object.fromEntries(below("model.layers.0.self_attn.", {
      "q_a_proj.weight": zeros(24, 512), "q_a_layernorm.weight": zeros(24),
      "q_b_proj.weight": zeros(4 * 192, 24), "kv_a_proj_with_mqa.weight": zeros(16 + 64, 512),
      "kv_a_layernorm.weight": zeros(16), "kv_b_proj.weight": zeros(4 * 256, 16),
      "o_proj.weight": zeros(512, 4 * 128),
    })));`;

const pages = [
  "README.md",
  "bindings/reference.md",
  ...readdirSync(`${root}docs`).map((name) => `docs/${name}`),
].filter((name) => name.endsWith(".md"));

const examples = pages.flatMap((page) => {
  const text = readFileSync(root + page, "utf8");
  return [...text.matchAll(/```js\n([\s\S]*?)```/g)].map(([, code = ""], n) => ({
    name: `${page}, example ${n + 1}`,
    page,
    code,
  }));
});

const folder = `${root}build/results/docs`;
mkdirSync(folder, { recursive: true });

describe("the docs", () => {
  it("have examples", () => expect(examples.length).toBeGreaterThan(12));

  it.each(examples)("$name", ({ name, page, code }) => {
    const loads = /await (load|spawn)\(/.test(code);
    const opening = loads ? "" : 'import { load } from "heed";\nconst heed = await load();\n';
    const hand = AT_HAND[page] ?? "";
    const latent = code.includes("Latent") ? LATENT : "";
    // Which variants are built does not matter here.
    let text = `${hand}${latent}\n${opening}${code}`.replace(
      "load()",
      'load({ threads: 1, simd: "plain" })',
    );
    for (const [large, small] of SMALLER) text = text.replace(large, small);
    const file = `${folder}/${name.replaceAll(/[^a-z0-9]+/gi, "_")}.mjs`;
    writeFileSync(file, text);
    const printed = execFileSync(process.execPath, [file], { cwd: root, encoding: "utf8" });
    // A page that shows what is printed shows the truth: "// x . ." below the last line.
    const shown = code.match(/^\/\/ [x.] .*$/gm)?.map((line) => line.slice(3));
    if (shown) expect(printed.trim().split("\n")).toEqual(shown);
  });
});
