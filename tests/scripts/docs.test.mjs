// Commands of the README and the docs name what there is; C++ and CMake of the docs are run by
// scripts/consumer.mjs, JavaScript by tests/js/docs.test.ts.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  cmakeProjects,
  cppExamples,
  examplesIn,
  pages,
  programOf,
} from "../../scripts/docs_examples.mjs";
import { root } from "../../scripts/toolchain.mjs";

const read = (file) => readFileSync(join(root, file), "utf8");
const commands = pages()
  .flatMap((page) => examplesIn(page, "sh"))
  .flatMap(({ page, code }) => code.split("\n").map((line) => ({ page, line })))
  .map(({ page, line }) => ({ page, line: line.replace(/\s+#.*$/, "").trim() }))
  .filter(({ line }) => line !== "");

const isKnown = [
  [/^npm (start|test)$/, ([, name]) => name in scripts],
  [/^npm pack$/, () => true],
  [/^npm install heed$/, () => JSON.parse(read("package.json")).name === "heed"],
  [
    /^npm run ([\w:]+)(?: -- (.*))?$/,
    ([, name, rest]) => name in scripts && knowsFlags(name, rest),
  ],
  [/^heed-bench (.*)$/, ([, rest]) => knowsFlags("bench", rest)],
  [/^cmake (.*)$/, ([, rest]) => definitions(rest).every((name) => cmake.includes(name))],
  [/^scripts\/gpu-check (\w+)$/, ([, name]) => read("scripts/gpu-check").includes(name)],
];
const { scripts } = JSON.parse(read("package.json"));
const cmake = `${read("CMakeLists.txt")} CMAKE_BUILD_TYPE CMAKE_PREFIX_PATH`;
const definitions = (text) => [...text.matchAll(/-D(\w+)=/g)].map(([, name]) => name);

function knowsFlags(name, text = "") {
  // What heed-bench takes, its script hands on.
  const sources = { bench: "native_bench/options.cc" };
  const flags = text.match(/--[a-z-]+/g) ?? [];
  if (flags.length === 0) return true;
  const source = read(sources[name] ?? scripts[name].replace(/^node /, ""));
  return flags.every((flag) => source.includes(flag) || source.includes(flag.slice(2)));
}

test("EveryCommandOfTheDocsIsThere", () => {
  assert.ok(commands.length > 15, "the commands could not be read");
  for (const { page, line } of commands) {
    const rule = isKnown.find(([pattern]) => pattern.test(line));
    assert.ok(rule, `${page}: "${line}" is of a kind that no test knows`);
    const [pattern, check] = rule;
    assert.ok(check(pattern.exec(line)), `${page}: "${line}" names what is not there`);
  }
});

test("EveryScriptOfTheDocsIsThere", () => {
  for (const page of pages()) {
    for (const [, script] of read(page).matchAll(/`node (scripts\/[\w/.]+)/g)) {
      assert.ok(existsSync(join(root, script)), `${page}: ${script}`);
    }
  }
});

test("EveryExampleInCppIsAProgram", () => {
  const examples = cppExamples();
  assert.ok(examples.some(({ page }) => page === "README.md"));
  for (const example of examples) {
    if (programOf(example).includes(example.code)) continue;
    const hand = `tests/docs/${example.name}.inc`;
    assert.ok(existsSync(join(root, hand)), `${example.page}: its example wants ${hand}`);
  }
  const code = "#include <a.h>\nF(x);\nfor (;;) {}\n\nvoid F(int x) {\n  x;\n}\n";
  const program = programOf({ name: "b_1", page: "b.md", code });
  assert.match(program, /#include <a\.h>\n\nvoid F\(int x\) \{\n {2}x;\n\}\n\nint main\(\) \{/);
  assert.match(program, /F\(x\);\nfor \(int token = 0; token < 3; \+\+token\)/);
});

test("EveryWayOfFindingHeedIsAProject", () => {
  const [readme] = cmakeProjects("README.md", root);
  assert.match(readme, /find_package\(heed/);
  const setup = cmakeProjects("docs/setup.md", "/somewhere");
  assert.equal(setup.length, 2);
  assert.match(setup[1], /SOURCE_DIR \/somewhere\)/);
  for (const text of setup) assert.match(text, /target_link_libraries\(your_program/);
});
