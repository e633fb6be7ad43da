// What all pages share: head, header and the sentence for readers without scripts. The HTML file of a page
// holds what differs: title, description and script, and behind <body>, where it has one, its own markup.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { hasOwnMessages } from "./messages.mjs";

const SHELL = fileURLToPath(new URL("shell.html", import.meta.url));

/** The header's links: file, words. The first page is its folder. */
const PLACES = [
  ["index", "{{Home}}"],
  ["gallery", "{{Gallery}}"],
  ["race", "{{Race}}"],
  ["training", "{{Training}}"],
  ["model", "{{Model}}"],
  ["edge_cases", "{{Edge cases}}"],
  ["benchmarks", "{{Benchmarks}}"],
];

/** The pages that are files of their own, without ".html". */
export const PAGE_FILES = PLACES.map(([file]) => file);

/** Puts parts in place of the marks `<!--name-->` and `__name__`; marks of other parts stay. */
export const fill = (html, parts) =>
  html.replace(
    /<!--(\w+)-->|__([a-zA-Z]+)__/g,
    (mark, comment, word) => parts[comment ?? word] ?? mark,
  );

/** `here` is the page's own file, without ".html". */
function places(root, here) {
  const links = PLACES.map(([file, text]) => {
    const mark = file === here ? ' aria-current="page"' : "";
    const address = file === "index" ? `${root}/` : `${root}/${file}.html`;
    return `<li><a href="${address}"${mark}>${text}</a></li>`;
  });
  return links.join("\n            ");
}

const indented = (markup, by) => markup.trim().replaceAll("\n", `\n${" ".repeat(by)}`);

/** The whole page of a file that lies at `path` below web/. */
export function inShell(own, path) {
  const root = path.includes("/") ? ".." : ".";
  const here = path.replace(/\.html$/, "");
  const [head, body = '<div id="app"></div>'] = own.split(/^<body>$/m);
  return fill(readFileSync(SHELL, "utf8"), {
    root,
    messages: hasOwnMessages(here) ? ` data-messages="${here}"` : "",
    head: indented(head, 4),
    places: places(root, here),
    body: indented(body, 6),
  });
}
