// Writes the tables of docs/mechanisms.md from mechanisms.inc, inputs.inc, params.inc and read_by.inc, or
// checks that they are up to date (the default). Usage: node scripts/docs_table.mjs [--write]
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const page = join(root, "docs/mechanisms.md");

const folder = join(root, "cpp/include");

/** The text of an .inc file and of those it includes, without comments and line continuations. */
function readList(file) {
  const text = readFileSync(join(folder, file), "utf8")
    .replaceAll(/^\/\/.*$/gm, "")
    .replaceAll("\\\n", " ");
  return text.replaceAll(/^#include "([^"]+)"$/gm, (_, included) => readList(included));
}

/** Replaces the names of #defines, each of which may use those before it, by what they stand for. */
function expand(text) {
  const defines = [];
  const replace = (line) =>
    defines.reduce((now, [name, value]) => now.replaceAll(name, value), line);
  const lines = text.split("\n").map((line) => {
    const define = /^#define (\w+) (.+)$/.exec(line);
    if (define) defines.unshift([new RegExp(`\\b${define[1]}\\b`, "g"), replace(define[2])]);
    return line.startsWith("#") ? "" : replace(line);
  });
  return lines.join("\n");
}

/** The arguments of every `macro(...)` row of an .inc file. */
export function readRows(file, macro) {
  const body = expand(readList(`heed/${file}`));
  const rows = [];
  for (let at = body.indexOf(`${macro}(`); at >= 0; at = body.indexOf(`${macro}(`, at + 1)) {
    rows.push(readArguments(body, at + macro.length + 1));
  }
  return rows;
}

/** Splits at commas outside strings up to the closing bracket; joins adjacent string literals. */
function readArguments(text, start) {
  const found = [];
  let current = "";
  for (let i = start; i < text.length; i++) {
    const c = text[i];
    if (c === '"') {
      const literal = /^"(?:[^"\\]|\\.)*"/.exec(text.slice(i))[0];
      current += JSON.parse(literal);
      i += literal.length - 1;
    } else if (c === "," || c === ")") {
      found.push(current);
      current = "";
      if (c === ")") return found;
    } else if (!/\s/.test(c)) {
      current += c;
    }
  }
  throw new Error("a row is not closed");
}

export const readMechanisms = () =>
  readRows("mechanisms.inc", "HEED_MECHANISM").map(
    ([id, family, title, year, source, summary, formula, inputs, params, cost, capabilities]) => ({
      id,
      family,
      title,
      year: Number(year),
      source,
      summary,
      formula,
      inputs,
      params,
      cost,
      capabilities,
    }),
  );

export const readParameters = () =>
  readRows("params.inc", "HEED_PARAMETER").map(
    ([name, type, fallback, range, symbol, summary]) => ({
      name,
      type,
      default: fallback,
      range,
      symbol,
      summary,
    }),
  );

export const readInputs = () =>
  readRows("inputs.inc", "HEED_INPUT").map(([name, kind, shape, draw, summary]) => ({
    name,
    kind,
    shape,
    draw,
    summary,
  }));

/** Who reads a parameter or an input: [{ name, words }] by its name. */
export const readReaders = () =>
  new Map(
    readRows("read_by.inc", "HEED_READ_BY").map(([name, readers]) => [
      name,
      readers.split(" ").map((reader) => {
        const [by, words] = reader.split("=");
        return { name: by, words: words?.split("|") ?? [] };
      }),
    ]),
  );

const code = (text) => (text === "" ? "" : `\`${text.replaceAll("|", "\\|")}\``);
const words = (text) => text.split(" ").filter(Boolean).map(code).join(" ");

/** What has to be given with it, as a sentence. */
function onlyBeside(name) {
  const row = readRows("read_by.inc", "HEED_READ_BY").find(([one]) => one === name);
  if (row === undefined) return "";
  const readers = row[1].split(" ").map(code);
  const last = readers.pop();
  return ` Only beside ${readers.length > 0 ? `${readers.join(", ")} or ` : ""}${last}.`;
}

function render() {
  const mechanisms = readMechanisms().map(
    (m) =>
      `| ${code(m.id)} | ${m.title} | ${m.summary} | ${m.source} | ${words(m.inputs)} | ${words(m.params)} | ${m.cost} |`,
  );
  const formulas = readMechanisms().map(
    (m) => `| ${code(m.id)} | $\`${m.formula.replaceAll("|", "\\vert ")}\`$ | ${m.capabilities} |`,
  );
  const inputs = readInputs().map(
    (i) => `| ${code(i.name)} | ${i.kind} | ${code(i.shape)} | ${i.summary}${onlyBeside(i.name)} |`,
  );
  const parameters = readParameters().map(
    (p) =>
      `| ${code(p.name)} | ${p.type} | ${code(p.default)} | ${code(p.range)} | ${p.summary}${onlyBeside(p.name)} |`,
  );
  return [
    "# Mechanisms",
    "",
    "Written by `node scripts/docs_table.mjs --write` from the files of `cpp/include/heed/mechanisms/`,",
    "`cpp/include/heed/inputs.inc`, `params.inc` and `read_by.inc`. Names are those of C++ requests;",
    "JavaScript uses the same words in camelCase (`key_lengths` is `keyLengths`, `window_left` is",
    "`window.left`). An input with `?` may be left out. `time` says how time grows with the length: `pattern` with the",
    "pairs that a rule leaves, `edges` with those of a graph. Error bounds are in [accuracy](accuracy.md), formulas",
    "[below](#formulas).",
    "",
    "| id | title | what it does | source | inputs | parameters | time |",
    "|---|---|---|---|---|---|---|",
    ...mechanisms,
    "",
    "## Formulas",
    "",
    "What a row has: `gqa` (query heads share KV heads), `causal` (by a parameter or always, as recurrences are),",
    "`window`, `lengths`, `keep`, `bias`, `alibi`, `softcap`, `sinks`, `dropout`; results `lse`, `weights`, `scores`,",
    "`state`, `tiles`; `strides` (tensors of any strides), `gradient`, `approximates` (stands in for exact attention),",
    "`row_buffer` (holds a row of scores), `bias_kv` and `zero_attn` (keys of its own), `head_mask`; of positions",
    "`positions`, `scaling`, `inverse` and `in_place`. Gradients are those of `heed/gradients` and C++.",
    "",
    "| id | formula | has |",
    "|---|---|---|",
    ...formulas,
    "",
    "## Inputs",
    "",
    'Extents with `?` may be 1 and are then broadcast; `|` separates alternatives. What stands "only beside" others is',
    "refused without them, as nothing would read it.",
    "",
    "| name | kind | shape | meaning |",
    "|---|---|---|---|",
    ...inputs,
    "",
    "## Parameters",
    "",
    "| name | type | default | range | meaning |",
    "|---|---|---|---|---|",
    ...parameters,
    "",
  ].join("\n");
}

export const isUpToDate = () => readFileSync(page, "utf8") === render();

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes("--write")) {
    writeFileSync(page, render());
  } else if (!isUpToDate()) {
    console.error("docs/mechanisms.md is out of date: node scripts/docs_table.mjs --write");
    process.exit(1);
  }
}
