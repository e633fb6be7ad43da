// The German table of each crafted page holds all that the page can say, whatever it fetches later, and no other
// build needs the tables; what figures say is asked for by its message, with numbers in the language's form.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { root } from "../../scripts/toolchain.mjs";
import { craftedMessages, spokenMessages } from "../../web/vite/messages.mjs";
import { mechanisms } from "../../web/vite/registry.mjs";

const crafted = mechanisms.map(({ id }) => id);

test("EveryMessageOfTheMechanismsIsInTheTableOfOneOfThem", () => {
  const said = new Set(crafted.flatMap((id) => [...craftedMessages(id)]));
  const own = [...spokenMessages()].filter(([, page]) => page === "mechanisms");
  assert.ok(own.length > 100);
  const missing = own.map(([message]) => message).filter((message) => !said.has(message));
  assert.deepEqual(missing, []);
});

test("WhatAPageFetchesLaterIsInItsTable", () => {
  assert.ok(craftedMessages("scaled_dot_product").has("mean weight"));
});

test("TheConfigurationOfTheSiteResolvesAllThatItImports", () => {
  const script = `
    import { loadConfigFromFile } from "vite";
    const loaded = await loadConfigFromFile({ command: "build", mode: "production" }, "web/vite.config.ts");
    console.log(loaded.config.base);`;
  const options = { cwd: root, encoding: "utf8" };
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ["--input-type=module", "-e", script],
    options,
  );
  assert.equal(stdout, "./\n", stderr);
  assert.doesNotMatch(stderr, /UNRESOLVED_IMPORT|Could not resolve/);
});

const SOURCES = fileURLToPath(new URL("../../web/src/", import.meta.url));

/** The scripts of each module and component, by its name. */
function scripts() {
  const names = readdirSync(SOURCES, { recursive: true }).filter((name) =>
    /\.(ts|svelte)$/.test(name),
  );
  return names.map((name) => {
    const source = readFileSync(SOURCES + name, "utf8");
    const blocks = [...source.matchAll(/<script[^>]*>([\s\S]*?)<\/script>/g)].map(
      ([, code]) => code,
    );
    return [name, name.endsWith(".ts") ? source : blocks.join("\n")];
  });
}

const treeOf = (name, code) => ts.createSourceFile(name, code, ts.ScriptTarget.Latest, true);

function everyNode(node, visit) {
  visit(node);
  ts.forEachChild(node, (child) => everyNode(child, visit));
}

const templateText = ({ head, templateSpans }) =>
  [head.text, ...templateSpans.map(({ literal }) => literal.text)].join("{}");

/** Strings that a value may be and that are no message: what calls and functions make of others is not seen. */
function literals(node) {
  if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) return [node.text];
  if (ts.isTemplateExpression(node)) return [templateText(node)];
  const isMade = [
    ts.isTaggedTemplateExpression,
    ts.isCallExpression,
    ts.isArrowFunction,
    ts.isElementAccessExpression,
    ts.isObjectLiteralExpression,
    ts.isBinaryExpression,
  ];
  if (isMade.some((is) => is(node))) return [];
  const found = [];
  ts.forEachChild(node, (child) => void found.push(...literals(child)));
  return found;
}

/** What stands on a plot, in a table or in a matrix. */
function shownWords(object) {
  const values = new Map(
    object.properties
      .filter(ts.isPropertyAssignment)
      .map(({ name, initializer }) => [name.getText(), initializer]),
  );
  const all = new Set(object.properties.map(({ name }) => name?.getText()));
  const isPlotted = ["points", "ticks", "bars"].some((name) => all.has(name));
  // A line with a label does not show its name.
  const named = all.has("label") ? "label" : "name";
  const shown = ["columns", "rowName", "columnName", ...(isPlotted ? [named] : [])];
  return shown.flatMap((name) => (values.has(name) ? literals(values.get(name)) : []));
}

/** Figures' words that are no message, in a script. */
function unsaid(name, code) {
  const found = [];
  everyNode(treeOf(name, code), (node) => {
    if (ts.isObjectLiteralExpression(node)) found.push(...shownWords(node));
  });
  return found.filter((text) => /\p{L}{2}/u.test(text));
}

/** The same in every language. */
const NAMES = new Set(["GFLOP/s", "p10 ms", "p90 ms", "RoPE", "xPos"]);

test("WhatPlotsAndTablesSayIsAMessage", () => {
  const series = `const line = { name: \`estimate \${key}\`, points: [] }, axis = { name: t\`x\`, ticks };`;
  const table = 'const rows = { columns: [t`key`, wide ? "weights" : "w", ...labels] };';
  assert.deepEqual(unsaid("line.ts", series), ["estimate {}"]);
  assert.deepEqual(unsaid("table.ts", table), ["weights"]);
  const hidden =
    'const line = { name: "softmax", label: t`exact`, points }; const row = { name: "id" };';
  assert.deepEqual(unsaid("hidden.ts", hidden), []);
  const missing = scripts().flatMap(([name, code]) =>
    unsaid(name, code)
      .filter((text) => !NAMES.has(text))
      .map((text) => `${name}: ${text}`),
  );
  assert.deepEqual(missing, []);
});

/** Templates, other than messages, in which a line may end between a number and its unit. */
function looseUnits(name, code) {
  const found = [];
  everyNode(treeOf(name, code), (node) => {
    const isMessage = ts.isTaggedTemplateExpression(node.parent ?? node);
    if (!ts.isTemplateExpression(node) || isMessage) return;
    const text = templateText(node);
    if (/[}\d] (%|ms|µs|s|[GT]FLOP\/s|[kMG]B|[MG]iB|B)(?![\p{L}\d])/u.test(text)) found.push(text);
  });
  return found;
}

test("NumbersStayWithTheirUnits", () => {
  const units = "const all = [`{} ms`, t`{} ms`, `{} more`];".replaceAll("{}", "$" + "{x}");
  assert.deepEqual(looseUnits("units.ts", units), ["{} ms"]);
  const loose = scripts().flatMap(([name, code]) =>
    looseUnits(name, code).map((text) => `${name}: ${text}`),
  );
  assert.deepEqual(loose, []);
});

/** Numbers of an axis with a point where the language has a comma. */
const isPlainAxis = (code) => /\btext: (String\b(?!\()|\((\w+)[^)]*\) => String\(\2\))/.test(code);

test("AxesHaveTheDecimalMarkOfTheLanguage", () => {
  assert.ok(isPlainAxis("text: String }") && isPlainAxis("text: (y) => String(y),"));
  assert.ok(!isPlainAxis("text: decimal") && !isPlainAxis("text: String(key + 1)"));
  const plain = scripts().filter(([, code]) => isPlainAxis(code));
  assert.deepEqual(
    plain.map(([name]) => name),
    [],
  );
});
