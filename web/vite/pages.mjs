// One HTML file per mechanism, made from mechanisms/mechanism.html: its title, sentence, source and
// formula are there before any script runs. Also the header that all pages share, and the service
// worker with the list of files that it keeps.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { familyTitle } from "../src/lib/families.ts";
import { toMathml } from "./formulas.mjs";
import { isCrafted, mechanisms } from "./registry.mjs";

const TEMPLATE = "mechanisms/mechanism.html";
const PAGE = /\/mechanisms\/(\w+)\.html(\?.*)?$/;

const escaped = (text) =>
  text.replace(
    /[&<>"]/g,
    (mark) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[mark],
  );

/** The header's links: file, words. The first page is its folder. */
const PLACES = [
  ["index", "Home"],
  ["gallery", "Gallery"],
  ["race", "Race"],
  ["training", "Training"],
  ["edge_cases", "Edge cases"],
  ["benchmarks", "Benchmarks"],
];

/** The pages that are files of their own, without ".html". */
export const PAGE_FILES = PLACES.map(([file]) => file);

/** `root` leads from the page to the site's first folder; `here` is the page's own file, or "". */
function header(root, here) {
  const links = PLACES.map(([file, text]) => {
    const mark = file === here ? ' aria-current="page"' : "";
    const address = file === "index" ? `${root}/` : `${root}/${file}.html`;
    return `<li><a href="${address}"${mark}>${text}</a></li>`;
  });
  return `<header class="site">
        <a class="name" href="${root}/">heed</a>
        <nav aria-label="Site">
          <ul>
            ${links.join("\n            ")}
          </ul>
        </nav>
        <label class="theme">
          <span class="soft word">Theme</span>
          <select id="theme"><option>auto</option><option>light</option><option>dark</option></select>
        </label>
      </header>`;
}

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
  return `<a href="./${id}.html" rel="${rel}">${words}</a>`;
}

/** What replaces the marks `<!--name-->` of the template. */
function partsOf(id) {
  const index = mechanisms.findIndex((row) => row.id === id);
  const row = mechanisms[index];
  if (!row) return null;
  return {
    id,
    title: escaped(row.title),
    summary: escaped(row.summary),
    family: `<a href="../gallery.html#family=${row.family}">${escaped(familyTitle(row.family))}</a>`,
    year: String(row.year),
    cost: escaped(row.cost),
    source: sourceMarkup(row.source),
    formula: toMathml(row.formula),
    crafted: isCrafted(id) ? "crafted" : "plain",
    previous: neighbour(-1, index),
    next: neighbour(1, index),
  };
}

const fill = (html, parts) =>
  html.replace(/<!--(\w+)-->|__(\w+)__/g, (mark, comment, word) => parts[comment ?? word] ?? mark);

/** Tags that fetch the code of a crafted page together with the rest. */
function craftedLinks(id, bundle) {
  const chunk = Object.values(bundle).find(({ facadeModuleId }) =>
    facadeModuleId?.endsWith(`/src/mechanisms/${id}/Page.svelte`),
  );
  if (!chunk) return "";
  const chunks = [chunk.fileName, ...chunk.imports];
  const styles = chunks.flatMap((name) => [...(bundle[name]?.viteMetadata?.importedCss ?? [])]);
  return [
    ...chunks.map((name) => `<link rel="modulepreload" href="../${name}" />`),
    ...new Set(styles.map((name) => `<link rel="stylesheet" href="../${name}" />`)),
  ].join("\n    ");
}

function writePages(folder, bundle) {
  const file = join(folder, TEMPLATE);
  const template = readFileSync(file, "utf8");
  for (const { id } of mechanisms) {
    const links = craftedLinks(id, bundle);
    const known = (tag) => template.includes(tag.match(/(?:href)="([^"]+)"/)[1]);
    const added = links.split("\n").filter((tag) => tag.trim() && !known(tag));
    const html = fill(template, { ...partsOf(id), links: added.join("\n") });
    writeFileSync(join(folder, `mechanisms/${id}.html`), html);
  }
  rmSync(file);
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

export function pages() {
  let outDir = "";
  return {
    name: "heed-pages",
    configResolved: (config) => {
      outDir = config.build.outDir;
    },
    transformIndexHtml: {
      order: "pre",
      handler(html, { path, originalUrl }) {
        const inFolder = path.startsWith("/mechanisms/");
        const here = inFolder ? "" : (path.match(/(\w+)\.html$/)?.[1] ?? "index");
        const id = originalUrl?.match(PAGE)?.[1];
        const own = id ? { ...partsOf(id), links: "" } : {};
        return fill(html, { ...own, header: header(inFolder ? ".." : ".", here) });
      },
    },
    /** The development server makes each page when it is asked for. */
    configureServer(server) {
      server.middlewares.use(async (request, response, next) => {
        const id = request.url?.match(PAGE)?.[1];
        if (!id || !partsOf(id)) return next();
        const template = readFileSync(join(server.config.root, TEMPLATE), "utf8");
        const html = await server.transformIndexHtml(`/${TEMPLATE}`, template, request.url);
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
