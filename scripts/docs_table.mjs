// Writes the tables of docs/mechanisms.md from mechanisms.inc and params.inc, or checks that they
// are up to date (the default). Usage: node scripts/docs_table.mjs [--write]
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const page = join(root, "docs/mechanisms.md");

/** The arguments of every `macro(...)` row of an .inc file, with its own #defines applied. */
export function readRows(file, macro) {
  const text = readFileSync(join(root, "cpp/include/heed", file), "utf8").replace(/^\/\/.*$/gm, "");
  const defines = [...text.matchAll(/^#define (\w+) ("(?:[^"\\]|\\.)*")$/gm)];
  let body = text.replace(/^#.*$/gm, "");
  for (const [, name, value] of defines)
    body = body.replaceAll(new RegExp(`\\b${name}\\b`, "g"), value);
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

const code = (text) => (text === "" ? "" : `\`${text.replaceAll("|", "\\|")}\``);
const words = (text) => text.split(" ").filter(Boolean).map(code).join(" ");

function render() {
  const mechanisms = readMechanisms().map(
    (m) =>
      `| ${code(m.id)} | ${m.title} | ${m.summary} | ${m.source} | ${words(m.inputs)} | ${words(m.params)} | ${m.cost} |`,
  );
  const parameters = readParameters().map(
    (p) => `| ${code(p.name)} | ${p.type} | ${code(p.default)} | ${code(p.range)} | ${p.summary} |`,
  );
  return [
    "# Mechanisms",
    "",
    "Written by `node scripts/docs_table.mjs --write` from `cpp/include/heed/mechanisms.inc` and",
    "`cpp/include/heed/params.inc`. Names are those of C++ requests; JavaScript uses the same words in",
    "camelCase (`key_lengths` is `keyLengths`, `window_left` is `window.left`). An input with `?` may be",
    "left out.",
    "",
    "| id | title | what it does | source | inputs | parameters | time |",
    "|---|---|---|---|---|---|---|",
    ...mechanisms,
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
