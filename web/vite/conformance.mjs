// The tables of docs/conformance.md, which its tests write and check.
import { readFileSync } from "node:fs";

const page = new URL("../../docs/conformance.md", import.meta.url);

/** What stands between the marks of the page, by mark, and what a visitor calls it. */
const SUITES = { onnx: "ONNX operator tests", literal: "tests of other projects" };

/** The rows of a table: what was counted, cases, passed, what is missing. */
function rowsOf(text, mark) {
  const table = text.match(new RegExp(`<!-- ${mark} -->([\\s\\S]*?)<!-- end of ${mark} -->`));
  if (!table) throw new Error(`docs/conformance.md has no table "${mark}"`);
  const rows = [...table[1].matchAll(/^\| ([^|]+?) \| (\d+) \| (\d+) \| ([^|]*?) ?\|$/gm)];
  if (rows.length === 0) throw new Error(`docs/conformance.md: the table "${mark}" is empty`);
  return rows.map(([, suite, cases, pass, notYet]) => ({
    suite,
    cases: Number(cases),
    pass: Number(pass),
    notYet: notYet.trim(),
  }));
}

/** All of what the mechanisms' authors compute, as one row. */
function authorsOf(text) {
  const rows = rowsOf(text, "authors");
  const repositories = new Set(rows.map(({ suite }) => suite.split(", ")[1]));
  const sum = (pick) => rows.reduce((total, row) => total + pick(row), 0);
  return {
    suite: "what the authors’ own code computes",
    from: `${repositories.size} repositories`,
    cases: sum((row) => row.cases),
    pass: sum((row) => row.pass),
    notYet: rows
      .map((row) => row.notYet)
      .filter(Boolean)
      .join("; "),
  };
}

/** @returns {{suite: string, from: string, cases: number, pass: number, notYet: string}[]} */
export function readConformance() {
  const text = readFileSync(page, "utf8");
  const suites = Object.entries(SUITES).flatMap(([mark, from]) =>
    rowsOf(text, mark).map((row) => ({ ...row, from })),
  );
  return [...suites, authorsOf(text)];
}
