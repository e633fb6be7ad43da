// The layout is tested: every row of the list has its files, headers include only what their layer
// may know, docs name paths that exist, links resolve. Run by `node --test tests/layout/`.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import {
  isUpToDate,
  readInputs,
  readMechanisms,
  readParameters,
  readReaders,
} from "../../scripts/docs_table.mjs";
import { isUpToDate as speedsAreUpToDate } from "../../scripts/performance_table.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
  cwd: root,
  encoding: "utf8",
})
  .split("\n")
  .filter((file) => file !== "" && existsSync(join(root, file)));
const read = (file) => readFileSync(join(root, file), "utf8");
const under = (prefix, pattern) => files.filter((f) => f.startsWith(prefix) && pattern.test(f));
const mechanisms = readMechanisms();

test("EveryMechanismHasItsFiles", () => {
  assert.ok(mechanisms.length >= 2, "the list could not be read");
  for (const { id, family } of mechanisms) {
    for (const file of [`cpp/reference/${id}.cc`, `tests/cpp/${family}/${id}_test.cc`]) {
      assert.ok(existsSync(join(root, file)), `${id} is in mechanisms.inc, but ${file} is missing`);
    }
    assert.ok(read("cpp/src/run.cc").includes(`"${id}"`), `${id} has no runner in cpp/src/run.cc`);
  }
});

test("EveryRowIsComplete", () => {
  for (const row of mechanisms) {
    assert.match(row.id, /^[a-z][a-z0-9_]*$/);
    assert.ok(row.year > 1900 && row.year < 2100, `${row.id}: year ${row.year}`);
    for (const [field, value] of Object.entries(row)) {
      assert.ok(value !== "", `${row.id} has no ${field}`);
    }
  }
});

function assertDeclaredAndUsed(declared, used, file) {
  const names = new Set(declared.map((row) => row.name));
  assert.deepEqual(
    [...used].filter((name) => !names.has(name)),
    [],
    `used, but not in ${file}`,
  );
  assert.deepEqual(
    [...names].filter((name) => !used.has(name)),
    [],
    `in ${file}, unused`,
  );
}

test("EveryParameterIsDeclaredAndUsed", () => {
  const used = mechanisms.flatMap((mechanism) => mechanism.params.split(" ").filter(Boolean));
  assertDeclaredAndUsed(readParameters(), new Set(used), "params.inc");
});

test("EveryInputIsDeclaredAndUsed", () => {
  const used = mechanisms.flatMap((mechanism) => mechanism.inputs.replaceAll("?", "").split(" "));
  assertDeclaredAndUsed(readInputs(), new Set(used), "inputs.inc");
});

test("EveryReaderIsDeclaredAndHasItsWords", () => {
  const parameters = new Map(readParameters().map((row) => [row.name, row]));
  const known = new Set([...parameters.keys(), ...readInputs().map(({ name }) => name)]);
  for (const [name, readers] of readReaders()) {
    assert.ok(known.has(name), `${name} is declared`);
    for (const { name: reader, words } of readers) {
      assert.ok(known.has(reader), `${reader}, which reads ${name}, is declared`);
      const range = parameters.get(reader)?.range.split("|") ?? [];
      for (const word of words) assert.ok(range.includes(word), `${reader} can be ${word}`);
    }
  }
});

/** Files of the sockets that are no plugs. */
const SHARED = new Set([
  "score",
  "modify",
  "keep",
  "normalize",
  "weights",
  "range",
  "key_bits",
  "pattern",
  "rows",
  "threshold",
  "sigmoid_bias",
]);

test("EveryPlugHasOneFileNamedAfterIt", () => {
  const makers = ["plugs.cc", "plugs_score.cc", "plugs_normalize.cc", "plugs_rows.cc"];
  const sockets = [...makers, "keep/range.h", "keep/plugs.cc", "keep/swin_window.h"];
  const plugs = sockets.map((file) => read(`cpp/src/exact/${file}`)).join("");
  for (const file of under(
    "cpp/src/exact/",
    /\/(score|modify|keep|normalize|weights)\/[^/]+\.h$/,
  )) {
    const stem = file
      .split("/")
      .at(-1)
      .replace(/(-inl)?\.h$/, "");
    if (SHARED.has(stem)) continue;
    assert.ok(plugs.includes(file.replace("cpp/", "")), `${file} is not plugged in anywhere`);
  }
});

const includes = (file) =>
  [...read(file).matchAll(/^#include "([^"]+)"/gm)].map((match) => match[1]);

function assertIncludes(prefix, allowed, why) {
  for (const file of under(prefix, /\.(h|cc)$/)) {
    for (const header of includes(file)) {
      assert.ok(
        allowed.some((rule) => rule.test(header)),
        `${file} includes ${header}: ${why}`,
      );
    }
  }
}

test("TheReferenceKnowsOnlyPublicHeaders", () => {
  assertIncludes(
    "cpp/reference/",
    [
      /^heed\/(tensor|request|error|reference)\.h$/,
      /^heed\/.*\.inc$/,
      /^reference\//,
      /^[a-z_]+\.h$/,
    ],
    "the oracle shares no code with the kernels",
  );
});

test("PublicHeadersIncludeOnlyEachOther", () => {
  assertIncludes("cpp/include/heed/", [/^heed\//], "users see no SIMD and no internals");
});

test("BindingsAndBenchmarkKnowOnlyPublicHeaders", () => {
  const outside = "bindings and benchmark use the public API";
  assertIncludes(
    "bindings/embind/",
    [/^heed\//, /^embind\//, /^bindings\//, /^(\.\.\/)?[a-z_]+\.h$/],
    outside,
  );
  for (const file of under("native_bench/", /\.(h|cc)$/)) {
    for (const header of includes(file))
      assert.ok(!header.startsWith("src/"), `${file}: ${outside}`);
  }
});

test("PlugsKnowTheirSocketAndSimd", () => {
  const allowed = [
    /^hwy\//,
    /^heed\//,
    /^src\/simd\//,
    /^src\/exact\/(tile|problem|stored_rows-inl|stored_keys-inl|score_gradient-inl|normalize_gradient-inl|row_gradient-inl|row_groups-inl|user_tile|projection-inl|relative_tables-inl)\.h$/,
    /^src\/parallel\/worker_scratch\.h$/,
    /^src\/(power|sort|split_mix)\.h$/,
    /^src\/exact\/(score|modify|keep|normalize|weights)\//,
  ];
  for (const socket of ["score", "modify", "keep", "normalize", "weights"]) {
    assertIncludes(`cpp/src/exact/${socket}/`, allowed, "a plug knows its socket and simd/");
  }
});

test("TheLibraryNeverPrintsExitsOrAborts", () => {
  for (const file of [...under("cpp/src/", /\.(h|cc)$/), ...under("cpp/reference/", /\.(h|cc)$/)]) {
    const code = read(file).replace(/\/\/.*$/gm, "");
    assert.doesNotMatch(code, /\b(printf|fprintf|puts|abort|exit)\s*\(|std::c(out|err)\b/, file);
  }
});

/** Functions that write and have no row of their own in tests/cpp/aliases, and why. */
const NO_OVERLAPS = {
  DropoutMask: "reads no memory",
  DrawRandomFeatures: "reads no memory",
  Forward: "is MultiHead with weights that nobody else can reach",
  Run: "every row of the registry is tested",
  RunForward: "gives what Run gives",
  RunBackward: "every row of the registry is tested",
  RunOperation: "calls the functions of rows.h, linear.h and analysis.h",
};

test("EveryFunctionThatWritesIsTestedForOverlaps", () => {
  const rows = under("tests/cpp/aliases/", /_test\.cc$/)
    .map(read)
    .join("");
  const writes =
    /TensorView<(float|uint8_t|int32_t)>|Outputs&|Gradients&|NamedTensor> (outputs|results)/;
  let count = 0;
  for (const file of under("cpp/include/heed/", /heed\/[a-z_]+\.h$/)) {
    if (file.endsWith("/cuda.h")) continue;
    const code = read(file).replaceAll(/\/\/.*/g, "");
    for (const [, name, params] of code.matchAll(/\bvoid (\w+)\(([^;]*?)\)(?: const)?\s*[;{]/g)) {
      if (!writes.test(params) || name in NO_OVERLAPS) continue;
      count += 1;
      assert.match(
        rows,
        new RegExp(`\\{"${name}[",]`),
        `${name} of ${file} has no row in tests/cpp/aliases: what if its output lies over an input?`,
      );
    }
  }
  assert.ok(count > 50, "the headers could not be read");
});

test("NoBuildOutputIsTracked", () => {
  const logs = files.filter((file) => /\.(log|tmp|orig|rej)$|(^|\/)(build|dist)\//.test(file));
  assert.deepEqual(logs, []);
});

test("SourcesAreShortAndAscii", () => {
  const sources = files.filter((f) =>
    /^(cpp|bindings|web|native_bench|scripts|tests)\/.*\.(h|cc|inc|ts|mjs|js|svelte|css)$/.test(f),
  );
  assert.ok(sources.length > 50);
  for (const file of sources) {
    const text = read(file);
    const limit = file.startsWith("tests/") || /test/.test(file) ? 600 : 500;
    assert.ok(text.split("\n").length <= limit, `${file} has more than ${limit} lines`);
    // The page's own texts may use typographic characters; code in C++ may not.
    if (/\.(h|cc|inc)$/.test(file))
      assert.doesNotMatch(text, /[^\x00-\x7f]/, `${file} is not ASCII`);
  }
});

test("DocsNamePathsThatExist", () => {
  const places = /`((?:cpp|bindings|web|native_bench|tests|docs|scripts)\/[\w./-]*)`/g;
  for (const page of [...under("docs/", /\.md$/), "README.md"]) {
    for (const [, path] of read(page).matchAll(places)) {
      assert.ok(
        existsSync(join(root, path)) || path.includes("score_floor"),
        `${page} names ${path}`,
      );
    }
  }
});

test("RelativeLinksResolve", () => {
  for (const page of files.filter((f) => f.endsWith(".md"))) {
    const text = read(page).replaceAll(/^```[\s\S]*?^```/gm, ""); // a lambda is no link
    for (const [, target] of text.matchAll(/\]\((?!https?:|#|mailto:)([^)\s#]+)/g)) {
      const path = normalize(join(dirname(page), target));
      assert.ok(existsSync(join(root, path)), `${page} links to ${target}`);
    }
  }
});

test("TheMechanismTableIsUpToDate", () => {
  assert.ok(isUpToDate(), "node scripts/docs_table.mjs --write");
});

test("TheSpeedTablesAreTheCommittedResults", () => {
  assert.ok(speedsAreUpToDate(), "node scripts/performance_table.mjs --write");
});

test("NoFileNamesARegistry", () => {
  const registry = new RegExp(
    `${["registry", "npmjs"].join("\\.")}|${["deb", "debian", "org"].join("\\.")}`,
  );
  for (const file of files.filter((f) => !/\.(png|wasm|pb|onnx|woff2?|ico)$/.test(f))) {
    assert.doesNotMatch(read(file), registry, `${file} names a package registry's host`);
  }
});
