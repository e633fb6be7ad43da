// What the site is built from: the one list of mechanisms, read from the files that C++ reads.
//   virtual:mechanisms      the rows as cards show them
//   virtual:cost_examples   how large the tensors of a realistic call are (examples.inc)
//   virtual:conformance     what docs/conformance.md says of suites that others made
//   virtual:benchmarks      the committed results of heed-bench
import { existsSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { readMechanisms, readParameters, readRows } from "../../scripts/docs_table.mjs";
import { readBenchmarks } from "./benchmarks.mjs";
import { readConformance } from "./conformance.mjs";

export const mechanisms = readMechanisms();
export const parameters = readParameters();

export const camelCase = (name) =>
  name.replaceAll(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());

const folder = fileURLToPath(new URL("../src/mechanisms/", import.meta.url));
for (const id of readdirSync(folder)) {
  if (!mechanisms.some((row) => row.id === id)) {
    throw new Error(`web/src/mechanisms/${id}: no mechanism of the list has this id`);
  }
}
for (const { id } of mechanisms) {
  if (!existsSync(`${folder}${id}/Page.svelte`)) {
    throw new Error(`web/src/mechanisms/${id}/Page.svelte is missing: ${id} has no figure`);
  }
}

/** Whether q, k and v are all that a race must give; an approximation may share keys and queries. */
function races({ inputs, capabilities }) {
  const required = inputs.split(" ").filter((name) => !name.endsWith("?"));
  const has = (name) => required.includes(name);
  const keys = has("k") || capabilities.split(" ").includes("approximates");
  return has("q") && has("v") && keys && !has("edges");
}

function cards() {
  return mechanisms.map(({ id, family, title, year, source, summary, cost, ...row }) => ({
    id,
    family,
    title,
    year,
    source,
    summary,
    cost,
    races: id !== "scaled_dot_product" && races(row),
  }));
}

const words = (text) => text.split(" ").filter(Boolean);
const pairs = (text) => Object.fromEntries(words(text).map((word) => word.split("=")));

function costExamples() {
  const rows = readRows("examples.inc", "HEED_EXAMPLE").map(([id, inputs, extents, params]) => [
    id,
    {
      inputs: words(inputs).map(camelCase),
      extents: pairs(extents),
      params: Object.fromEntries(
        Object.entries(pairs(params)).map(([name, value]) => [camelCase(name), value]),
      ),
    },
  ]);
  return {
    extents: Object.fromEntries(readRows("examples.inc", "HEED_EXTENT")),
    rows: Object.fromEntries(rows),
  };
}

const MODULES = {
  "virtual:mechanisms": () => `export const mechanisms = ${JSON.stringify(cards())};`,
  "virtual:conformance": () => `export const conformance = ${JSON.stringify(readConformance())};`,
  "virtual:benchmarks": () => `export const benchmarks = ${JSON.stringify(readBenchmarks())};`,
  "virtual:cost_examples": () => `export const costExamples = ${JSON.stringify(costExamples())};`,
};

export function registry() {
  return {
    name: "heed-registry",
    resolveId: (id) => (id in MODULES ? `\0${id}` : undefined),
    load: (id) => MODULES[id.replace(/^\0/, "")]?.(),
  };
}
