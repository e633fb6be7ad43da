// The tables of docs/conformance.md, which its tests write and check.
import { readFileSync } from "node:fs";

const page = new URL("../../docs/conformance.md", import.meta.url);

/** What stands between the marks of the page, by mark, and what a visitor calls it. */
const SUITES = { onnx: "ONNX operator tests", literal: "tests of other projects" };

/** @returns {{suite: string, from: string, cases: number, pass: number, notYet: string}[]} */
export function readConformance() {
  const text = readFileSync(page, "utf8");
  return Object.entries(SUITES).flatMap(([mark, from]) => {
    const table = text.match(new RegExp(`<!-- ${mark} -->([\\s\\S]*?)<!-- end of ${mark} -->`));
    if (!table) throw new Error(`docs/conformance.md has no table "${mark}"`);
    const rows = [...table[1].matchAll(/^\| ([^|]+?) \| (\d+) \| (\d+) \| ([^|]*?) ?\|$/gm)];
    if (rows.length === 0) throw new Error(`docs/conformance.md: the table "${mark}" is empty`);
    return rows.map(([, suite, cases, pass, notYet]) => ({
      suite,
      from,
      cases: Number(cases),
      pass: Number(pass),
      notYet: notYet.trim(),
    }));
  });
}
