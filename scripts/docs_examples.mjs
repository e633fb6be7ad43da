// The C++ examples of the README and the docs, as programs: each is what the page shows, between what a
// reader of the page has at hand (tests/docs) and a check that results were written.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { root } from "./toolchain.mjs";

// Its examples are steps of a change to the library itself.
const notPrograms = new Set(["docs/adding.md"]);

export function pages() {
  const docs = readdirSync(join(root, "docs")).filter((name) => name.endsWith(".md"));
  return ["README.md", ...docs.map((name) => `docs/${name}`), "native_bench/README.md"];
}

// The blocks of a page in a language, as { name, page, code }.
export function examplesIn(page, language) {
  const text = readFileSync(join(root, page), "utf8");
  const blocks = text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, "gm"));
  const stem = basename(page, ".md").toLowerCase();
  return [...blocks].map(([, code], i) => ({ name: `${stem}_${i + 1}`, page, code }));
}

export function cppExamples() {
  return pages()
    .filter((page) => !notPrograms.has(page))
    .flatMap((page) => examplesIn(page, "cpp"));
}

// A page may show a whole program. Else includes and functions stand before main(), whatever their place on the page; a loop that decodes for
// ever ends after three tokens.
export function programOf({ name, page, code }) {
  if (/^int main\(\)/m.test(code)) return `// From ${page}.\n${code}`;
  const functions = [...code.matchAll(/^(?:\w[\w:]* )+\w+\([^)]*\) \{\n[\s\S]*?^\}\n/gm)].map(
    ([text]) => text,
  );
  const includes = code.match(/^#include .*\n/gm) ?? [];
  const before = [...includes, ...functions];
  const body = before.reduce((text, part) => text.replace(part, ""), code);
  const after = `${name}_after.inc`;
  return [
    `// From ${page}.`,
    '#include "at_hand.h"',
    ...before,
    "int main() {",
    `#include "${name}.inc"`,
    body.replace("for (;;)", "for (int token = 0; token < 3; ++token)"),
    ...(existsSync(join(root, "tests/docs", after)) ? [`#include "${after}"`] : []),
    "return AllWritten() ? 0 : 1;",
    "}",
    "",
  ].join("\n");
}

// Writes the programs into a folder; returns how many.
export function writePrograms(folder) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const examples = cppExamples();
  for (const example of examples) {
    writeFileSync(join(folder, `${example.name}.cc`), programOf(example));
  }
  return examples.length;
}

// Projects that a page's blocks of CMake describe: each way of finding heed, with the line that links it.
// `path` stands for the folder that the page calls /path/to/heed.
export function cmakeProjects(page, path) {
  const blocks = examplesIn(page, "cmake").map(({ code }) => code);
  const link = blocks.find((code) => code.startsWith("target_link_libraries"));
  const ways = blocks.filter((code) => code !== link);
  return ways.map((way) =>
    [
      "cmake_minimum_required(VERSION 3.25)",
      "project(your_program LANGUAGES CXX)",
      "add_executable(your_program main.cc)",
      way.replace("/path/to/heed", path),
      way.includes("target_link_libraries") ? "" : link,
    ].join("\n"),
  );
}
