// One HTML file per mechanism, made from mechanisms/mechanism.html: its title, sentence, source and
// formula are there before any script runs. Also every page once more in German below de/, and the
// service worker with the list of files that it keeps.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { toMathmlParts } from "./formulas.mjs";
import { readMessages } from "./messages.mjs";
import { mechanisms } from "./registry.mjs";
import { fill, inShell, PAGE_FILES } from "./shell.mjs";

const TEMPLATE = "mechanisms/mechanism.html";
const PAGE = /\/mechanisms\/(\w+)\.html(\?.*)?$/;

/** The other language, its folder, and what its own speakers call it. */
const GERMAN = { language: "de", name: "Deutsch", folder: "de/" };
const ENGLISH = { language: "en", name: "English", folder: "" };

const escaped = (text) =>
  text.replace(
    /[&<>"]/g,
    (mark) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[mark],
  );

/** arXiv ids become links. */
const sourceMarkup = (source) =>
  escaped(source).replace(
    /arXiv:(\d{4}\.\d{4,5})/g,
    '<a href="https://arxiv.org/abs/$1">arXiv:$1</a>',
  );

function neighbour(offset, index) {
  const count = mechanisms.length;
  const { id, title } = mechanisms[(index + offset + count) % count];
  const [arrow, rel] = offset < 0 ? ["←", "prev"] : ["→", "next"];
  const words = offset < 0 ? `${arrow} ${escaped(title)}` : `${escaped(title)} ${arrow}`;
  return `<a href="./${id}.html" rel="${rel}" lang="en">${words}</a>`;
}

/**
 * Families and costs have messages in src/lib/families.ts. It is read, not imported: with it would come the tables of
 * translations, which only the plug-ins of this configuration know.
 */
const families = readFileSync(new URL("../src/lib/families.ts", import.meta.url), "utf8");
const FAMILY_TITLES = Object.fromEntries(
  [...families.matchAll(/family: "(\w+)",\s*title: t`([^`]+)`/g)].map(([, id, title]) => [
    id,
    title,
  ]),
);

function familyName(family) {
  const title = FAMILY_TITLES[family];
  if (title === undefined) throw new Error(`src/lib/families.ts has no title of "${family}"`);
  return `{{${title}}}`;
}

const COST_NAMES = { pattern: "{{with the pattern}}", edges: "{{with the edges}}" };
for (const cost of ["linear", "quadratic"]) COST_NAMES[cost] = `{{${cost}}}`;
/** Where the list has the best case. */
const OWN_COSTS = { attention_free: "{{quadratic; linear without a bias}}" };
const costName = ({ id, cost }) => OWN_COSTS[id] ?? COST_NAMES[cost] ?? escaped(cost);

/** What replaces the marks `<!--name-->` of the template. */
function partsOf(id) {
  const index = mechanisms.findIndex((row) => row.id === id);
  const row = mechanisms[index];
  if (!row) return null;
  return {
    id,
    title: escaped(row.title),
    summary: `{{${row.summary}}}`,
    family: `<a href="../gallery.html#family=${row.family}">${familyName(row.family)}</a>`,
    year: String(row.year),
    cost: costName(row),
    source: sourceMarkup(row.source),
    formula: toMathmlParts(row.formula),
    previous: neighbour(-1, index),
    next: neighbour(1, index),
  };
}

/** A page that stands at `file` below the folder of its language, in that language. */
function localised(html, file, { language, folder }, links = "") {
  const up = file.includes("/") ? ".." : ".";
  const home = folder === "" ? up : file.includes("/") ? "../.." : "..";
  const other = folder === "" ? GERMAN : ENGLISH;
  const messages = language === "en" ? {} : readMessages(language);
  const said = html.replace(/\{\{([^{}]+)\}\}/g, (_, message) =>
    escaped(messages[message] ?? message).replaceAll("'", "’"),
  );
  const page = fill(said, {
    lang: language,
    home,
    other: `${home}/${other.folder}${file === "index.html" ? "" : file}`,
    otherLanguage: other.language,
    otherName: other.name,
  });
  if (folder === "") return page;
  // Pages are in the folder of their language, everything else is where it was.
  const moved = page.replace(
    /((?:href|src)=")\.{1,2}\/(?=(?:assets|src|api|api-cpp)\/|icon\.svg|theme\.js)/g,
    `$1${home}/`,
  );
  return moved.replace("</head>", `${links}</head>`);
}

/** Tags that fetch the code of a mechanism's figure together with the rest. */
function craftedLinks(id, bundle) {
  const chunk = Object.values(bundle).find(({ facadeModuleId }) =>
    facadeModuleId?.endsWith(`/src/mechanisms/${id}/Page.svelte`),
  );
  if (!chunk) throw new Error(`the build has no file of the figure of ${id}`);
  const chunks = [chunk.fileName, ...chunk.imports];
  const styles = chunks.flatMap((name) => [...(bundle[name]?.viteMetadata?.importedCss ?? [])]);
  return [
    ...chunks.map((name) => `<link rel="modulepreload" href="../${name}" />`),
    ...new Set(styles.map((name) => `<link rel="stylesheet" href="../${name}" />`)),
  ].join("\n    ");
}

/** What a German page needs before it can say anything; a mechanism's has messages of its own. */
function germanLinks(bundle) {
  const nameOf = (module) => {
    const isOf = ({ facadeModuleId }) => facadeModuleId?.endsWith(module);
    const chunk = Object.values(bundle).find(isOf);
    if (!chunk) throw new Error(`the build has no file of ${module}`);
    return chunk.fileName;
  };
  const all = "virtual:messages/de";
  const own = (id) => [`${all}/mechanisms`, `${all}/mechanisms/${id}`];
  return (file) => {
    const home = file.includes("/") ? "../.." : "..";
    const id = file.match(/^mechanisms\/(\w+)\.html$/)?.[1];
    return [all, ...(id ? own(id) : [])]
      .map((module) => `<link rel="modulepreload" href="${home}/${nameOf(module)}" />\n  `)
      .join("");
  };
}

function writePages(folder, bundle) {
  const links = germanLinks(bundle);
  const write = (file, html) => {
    const german = join(folder, GERMAN.folder, file);
    mkdirSync(dirname(german), { recursive: true });
    writeFileSync(german, localised(html, file, GERMAN, links(file)));
    writeFileSync(join(folder, file), localised(html, file, ENGLISH));
  };
  const read = (file) => readFileSync(join(folder, file), "utf8");
  for (const name of PAGE_FILES) write(`${name}.html`, read(`${name}.html`));
  const template = read(TEMPLATE);
  for (const { id } of mechanisms) {
    const known = (tag) => template.includes(tag.match(/(?:href)="([^"]+)"/)[1]);
    const added = craftedLinks(id, bundle)
      .split("\n")
      .filter((tag) => tag.trim() && !known(tag));
    write(`mechanisms/${id}.html`, fill(template, { ...partsOf(id), links: added.join("\n") }));
  }
  rmSync(join(folder, TEMPLATE));
}

function filesOf(folder) {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)).split(sep).join("/"))
    .sort();
}

/**
 * The worker keeps every page and script, and the reference that every page compares with; of the
 * kernels' builds only the one that a visitor's browser has chosen.
 */
function writeServiceWorker(folder) {
  const files = filesOf(folder).filter((name) =>
    /\.(html|js|css|svg)$|heed-reference-[^/]*\.wasm$/.test(name),
  );
  const hash = createHash("sha256");
  for (const name of files) hash.update(name).update(readFileSync(join(folder, name)));
  const source = readFileSync(fileURLToPath(new URL("service_worker.js", import.meta.url)), "utf8");
  const version = hash.digest("hex").slice(0, 12);
  const head = `const VERSION = "${version}";\nconst FILES = ${JSON.stringify(files)};\n`;
  writeFileSync(join(folder, "service_worker.js"), head + source);
}

/** The page that an address of the development server asks for, or null. */
function pageAt(address) {
  const [, german, path] = address.match(/^\/(de\/)?([^?#]*)/);
  const id = `/${path}`.match(PAGE)?.[1];
  if (id) return partsOf(id) && { template: TEMPLATE, file: path, german };
  const file = path === "" ? "index.html" : path;
  return PAGE_FILES.includes(file.replace(/\.html$/, "")) && { template: file, file, german };
}

export function pages() {
  let [outDir, isBuild] = ["", false];
  return {
    name: "heed-pages",
    configResolved: (config) => {
      outDir = config.build.outDir;
      isBuild = config.command === "build";
    },
    transformIndexHtml: {
      order: "pre",
      handler(html, { path, originalUrl }) {
        const whole = inShell(html, path === "/" ? "index.html" : path.slice(1));
        // A build writes every page in every language once it knows its files.
        if (isBuild) return whole;
        const page = pageAt(originalUrl ?? path);
        const id = page?.file.match(/^mechanisms\/(\w+)\.html$/)?.[1];
        const own = id ? { ...partsOf(id), links: "" } : {};
        return localised(
          fill(whole, own),
          page?.file ?? path.slice(1),
          page?.german ? GERMAN : ENGLISH,
        );
      },
    },
    /** The development server makes each page when it is asked for. */
    configureServer(server) {
      server.middlewares.use(async (request, response, next) => {
        const page = pageAt(request.url ?? "/");
        if (!page || (page.template === page.file && !page.german)) return next();
        const template = readFileSync(join(server.config.root, page.template), "utf8");
        const html = await server.transformIndexHtml(`/${page.template}`, template, request.url);
        response.setHeader("Content-Type", "text/html; charset=utf-8");
        response.end(html);
      });
    },
    writeBundle(_, bundle) {
      writePages(outDir, bundle);
      writeServiceWorker(outDir);
    },
  };
}
