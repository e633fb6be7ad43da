// Messages of the site: found in its sources, and marked for translation where they stand as text
// between tags. A run of text, values and small tags is one message:
//   <p>Every <em class="query">query</em> meets {n} keys.</p>   "Every <em>query</em> meets {} keys."
// In code a message is t`...`; in the HTML files it is {{...}}.
//   node web/vite/messages.mjs    what the translations lack, and what they have too much
import { readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "svelte/compiler";
import { mechanisms, parameters } from "./registry.mjs";

const web = fileURLToPath(new URL("../", import.meta.url));

/** Tags that may stand inside a message. */
const SMALL = new Set([
  "a",
  "b",
  "br",
  "code",
  "em",
  "i",
  "output",
  "span",
  "strong",
  "sub",
  "sup",
]);
/** Attributes that are read out or seen. */
const READ = new Set(["alt", "aria-label", "aria-roledescription", "caption", "label"]);
for (const name of ["note", "placeholder", "restingText", "said", "text", "title"]) READ.add(name);

/** Tags and values of a message, between which its pieces stand: as in src/lib/messages.ts. */
const MARK = /<\/?\w+>|\{\}/g;

const hasWords = (text) => /\p{L}{2}/u.test(text);

function isSmall(node) {
  if (["Text", "ExpressionTag", "HtmlTag", "Comment"].includes(node.type)) return true;
  const { type, name, fragment } = node;
  return type === "RegularElement" && SMALL.has(name) && fragment.nodes.every(isSmall);
}

/** The message that small nodes make, and its texts with the number of the piece that each one is. */
function messageOf(nodes) {
  const texts = [];
  let marks = 0;
  const mark = (text) => {
    marks++;
    return text;
  };
  const said = (node) => {
    if (node.type === "Comment") return "";
    if (node.type === "Text") {
      texts.push({ node, piece: marks });
      return node.data.replace(/\s+/g, " ");
    }
    if (node.type !== "RegularElement") return mark("{}");
    const { name, fragment } = node;
    return mark(`<${name}>`) + fragment.nodes.map(said).join("") + mark(`</${name}>`);
  };
  const whole = nodes.map(said).join("");
  // Spaces at the ends are the layout's, not the message's.
  return { message: whole.trim(), texts: texts.filter(({ node }) => node.data.trim() !== "") };
}

/** Neighbouring small nodes with words among them. */
function runsOf({ nodes }) {
  const runs = [[]];
  for (const node of nodes) {
    if (isSmall(node)) runs.at(-1).push(node);
    else runs.push([]);
  }
  return runs
    .map(messageOf)
    .filter(({ texts }) => hasWords(texts.map(({ node }) => node.data).join(" ")));
}

function visit(node, found) {
  if (Array.isArray(node)) {
    for (const one of node) visit(one, found);
    return;
  }
  if (!node || typeof node !== "object") return;
  if (node.type === "Attribute") {
    const [first, second] = Array.isArray(node.value) ? node.value : [];
    if (first?.type === "Text" && !second && READ.has(node.name) && hasWords(first.data)) {
      found.attributes.push(node);
    }
  }
  if (node.type === "Fragment") found.runs.push(...runsOf(node));
  for (const [name, value] of Object.entries(node)) {
    // What is inside a small tag belongs to the message around it.
    const isInside = name === "fragment" && isSmall(node);
    if (!isInside && !["css", "instance", "module", "options", "metadata"].includes(name)) {
      visit(value, found);
    }
  }
}

/** The messages in a component's markup. */
function markupOf(source) {
  const found = { runs: [], attributes: [] };
  visit(parse(source, { modern: true }).fragment, found);
  // A run that starts in a small tag is seen before the message around it: not again.
  const seen = new Set();
  found.runs = found.runs.filter(
    ({ texts }) => !texts.some(({ node }) => seen.has(node) || !seen.add(node)),
  );
  return found;
}

/** `last` is the number of the message's last piece. Only the outer spaces are not in the pieces. */
function textEdit({ node, piece }, name, last) {
  const { data, start, end } = node;
  const before = piece === 0 ? data.match(/^\s*/)[0] : "";
  const after = piece === last ? data.match(/\s*$/)[0] : "";
  return { start, end, text: `${before}{${name}[${piece}]}${after}` };
}

function applied(source, edits) {
  return edits
    .sort((a, b) => b.start - a.start)
    .reduce(
      (text, { start, end, text: own }) => text.slice(0, start) + own + text.slice(end),
      source,
    );
}

/** A component whose texts are asked for by their messages. Its lines stay where they are. */
export function translatable(source) {
  const { runs, attributes } = markupOf(source);
  const messages = [
    ...runs.map(({ message }) => message),
    ...attributes.map(({ value }) => value[0].data),
  ];
  if (messages.length === 0) return source;
  const edits = runs.flatMap(({ texts, message }, at) => {
    const last = message.split(MARK).length - 1;
    return texts.map((text) => textEdit(text, `said${at}`, last));
  });
  attributes.forEach(({ name, start, end }, at) => {
    edits.push({ start, end, text: `${name}={said${runs.length + at}[0]}` });
  });
  const names = messages.map((message, at) => `said${at} = piecesOf(${JSON.stringify(message)})`);
  const lines = `import { pieces as piecesOf } from "/src/lib/messages.ts"; const ${names.join(", ")};`;
  const changed = applied(source, edits);
  const script = /<script lang="ts"(?! module)[^>]*>/;
  if (!script.test(changed)) return `<script lang="ts">${lines}</script>${changed}`;
  return changed.replace(script, (tag) => `${tag} ${lines}`);
}

/**
 * Svelte's preprocessor.
 * @returns {import("svelte/compiler").PreprocessorGroup}
 */
export const messages = () => ({
  name: "heed-messages",
  markup: ({ content, filename }) =>
    filename?.includes("/web/src/") ? { code: translatable(content) } : undefined,
});

/** The end of the template literal whose first letter is at `from`, and its message. */
function readTemplate(source, from) {
  let message = "";
  for (let at = from; at < source.length; at++) {
    if (source[at] === "`") return { message, end: at };
    if (source[at] === "\\") message += source[++at];
    else if (source.startsWith("${", at)) {
      message += "{}";
      at = endOfValue(source, at + 2);
    } else message += source[at];
  }
  throw new Error("a template literal does not end");
}

function endOfValue(source, from) {
  let depth = 1;
  for (let at = from; at < source.length; at++) {
    if (source[at] === "`") at = readTemplate(source, at + 1).end;
    else if (source[at] === "{") depth++;
    else if (source[at] === "}" && --depth === 0) return at;
  }
  throw new Error("a value of a template literal does not end");
}

const codeMessages = (source) =>
  [...source.matchAll(/(?<![\w.$])t`/g)].map(
    ({ index }) => readTemplate(source, index + 2).message,
  );

function filesIn(folder, ending) {
  return readdirSync(folder, { recursive: true })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name));
}

const sources = () => [".svelte", ".ts"].flatMap((ending) => filesIn(join(web, "src"), ending));

/** What was found in each file, and when that was changed last: a build asks for the files again and again. */
const known = new Map();

/** The messages of a component or a module. */
function sourceMessages(file) {
  const changed = statSync(file).mtimeMs;
  if (known.get(file)?.changed !== changed) known.set(file, { changed, found: readSource(file) });
  return known.get(file).found;
}

function readSource(file) {
  const source = readFileSync(file, "utf8");
  if (!file.endsWith(".svelte")) return codeMessages(source);
  const { runs, attributes } = markupOf(source);
  return [
    ...codeMessages(source),
    ...runs.map(({ message }) => message),
    ...attributes.map(({ value }) => value[0].data),
  ];
}

/** Pages with many words of their own, and the folders of src/ that say them: fetched by these pages alone. */
const OWN_FOLDERS = {
  benchmarks: ["benchmarks"],
  edge_cases: ["edge_cases"],
  gallery: ["gallery"],
  model: ["model", "model_page"],
  race: ["race"],
  training: ["training"],
  mechanisms: ["mechanisms"],
};

export const hasOwnMessages = (page) => Object.hasOwn(OWN_FOLDERS, page);

const CRAFTED = join(web, "src/mechanisms/");

/** The sentences of a mechanism's parameters. */
function parameterMessages(id) {
  const names = mechanisms.find((row) => row.id === id)?.params.split(" ") ?? [];
  return parameters.filter(({ name }) => names.includes(name)).map(({ summary }) => summary);
}

/** What a crafted page says: its own files, those of the figures that it shares, and its parameters. */
export function craftedMessages(id) {
  const files = new Set();
  const follow = (file) => {
    if (files.has(file) || !file.startsWith(CRAFTED)) return;
    files.add(file);
    const imports = readFileSync(file, "utf8").matchAll(/(?: from |import\()"(\.[^"]+)"/g);
    for (const [, path] of imports) follow(join(dirname(file), path.replace(/\.js$/, ".ts")));
  };
  follow(join(CRAFTED, id, "Page.svelte"));
  return new Set([...[...files].flatMap(sourceMessages), ...parameterMessages(id)]);
}

/**
 * What scripts say, by message: the page that alone says it, or "" for what others say too. What stands in
 * the HTML files only is said when the site is built.
 */
export function spokenMessages() {
  const pages = new Map();
  const add = (messages, page) => {
    for (const message of messages)
      pages.set(message, (pages.get(message) ?? page) === page ? page : "");
  };
  for (const file of sources()) {
    const isOwn = ([, folders]) =>
      folders.some((name) => file.startsWith(join(web, "src", name, "/")));
    const page = Object.entries(OWN_FOLDERS).find(isOwn)?.[0] ?? "";
    add(sourceMessages(file), page);
  }
  add(
    mechanisms.map(({ summary }) => summary),
    "gallery",
  );
  add(
    parameters.map(({ summary }) => summary),
    "mechanisms",
  );
  return pages;
}

/** Every message of the site, in English. */
export function siteMessages() {
  const found = new Set();
  const add = (all) => {
    for (const message of all) found.add(message);
  };
  for (const file of sources()) add(sourceMessages(file));
  add([...mechanisms, ...parameters].map(({ summary }) => summary));
  const markup = ["", "mechanisms", "vite"].flatMap((folder) =>
    readdirSync(join(web, folder))
      .filter((name) => name.endsWith(".html"))
      .map((name) => join(web, folder, name)),
  );
  for (const file of [
    ...markup,
    ...["pages", "shell"].map((name) => join(web, `vite/${name}.mjs`)),
  ]) {
    const source = readFileSync(file, "utf8");
    add([...source.matchAll(/\{\{([^{}]+)\}\}/g)].map(([, message]) => message));
  }
  return found;
}

const readTable = (name) => JSON.parse(readFileSync(join(web, `messages/${name}.json`), "utf8"));

/** Every translation: of the site's own messages, and of the registry's sentences. */
export const readMessages = (language) => ({
  ...readTable(language),
  ...readTable(`registry.${language}`),
});

/** Why a translation does not fit its message, or null. */
export function misfit(message, translation) {
  const marks = (text) =>
    (text.match(/<\/?\w+>|\{\d*\}/g) ?? []).map((mark) => mark.replace(/\d/, ""));
  const [own, other] = [marks(message), marks(translation)];
  const numbers = [...translation.matchAll(/\{(\d+)\}/g)].map(([, digits]) => Number(digits));
  if (numbers.length > 0 && numbers.sort((a, b) => a - b).some((number, at) => number !== at))
    return `numbers its values ${numbers.join(", ")}`;
  if (own.join(" ") !== other.join(" "))
    return `has ${other.join(" ")} in place of ${own.join(" ")}`;
  const hasTags = message.includes("</");
  const [pieces, others] = [message.split(MARK), translation.split(MARK)];
  const lost = hasTags && others.findIndex((piece, at) => piece !== "" && pieces[at] === "");
  return lost !== false && lost >= 0
    ? `has words where the message has none: “${others[lost]}”`
    : null;
}

/** What a language's file lacks, has too much, and has wrong. */
export function problemsOf(language) {
  const [messages, translations] = [siteMessages(), readMessages(language)];
  const missing = [...messages].filter((message) => !(message in translations));
  const unused = Object.keys(translations).filter((message) => !messages.has(message));
  const wrong = Object.entries(translations).flatMap(([message, translation]) => {
    const why = misfit(message, translation);
    return why ? [`${message}: ${why}`] : [];
  });
  return { missing, unused, wrong };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  console.log(JSON.stringify(problemsOf("de"), null, 2));
}
