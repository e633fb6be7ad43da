// What the engines are shown: the built site, whose pages note their complaints, and the package with pages
// that use it. Files are links: only the pages are written anew.
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "../toolchain.mjs";

const NOTES = '<script src="/complaints.js"></script>';

function withNotes(html, file) {
  if (!html.includes("<head>")) throw new Error(`${file} has no <head>`);
  return html.replace("<head>", `<head>\n    ${NOTES}`);
}

const written = ["", "mechanisms", "de", "de/mechanisms"];

function copyPages(from, to, below) {
  mkdirSync(join(to, below), { recursive: true });
  for (const entry of readdirSync(join(from, below), { withFileTypes: true })) {
    const path = join(below, entry.name);
    if (entry.name.endsWith(".html")) {
      writeFileSync(join(to, path), withNotes(readFileSync(join(from, path), "utf8"), path));
    } else if (!written.includes(path) && entry.name !== "service_worker.js") {
      // A worker that keeps the site would answer instead of the server.
      symlinkSync(join(from, path), join(to, path));
    }
  }
}

/** Resolves with the folder and the paths of the site's pages in English. */
export function makeFolder() {
  const folder = mkdtempSync(join(tmpdir(), "heed-engines-"));
  const site = join(root, "build/web");
  for (const below of written) copyPages(site, join(folder, "site"), below);
  symlinkSync(join(root, "dist"), join(folder, "package"));
  cpSync(join(root, "scripts/engines/page"), join(folder, "check"), { recursive: true });
  for (const name of ["complaints.js", "frame.html", "frame.js"]) {
    cpSync(join(root, "scripts/engines/page", name), join(folder, name));
  }
  const html = (below) => readdirSync(join(site, below)).filter((name) => name.endsWith(".html"));
  const pages = [...html(""), ...html("mechanisms").map((name) => `mechanisms/${name}`)];
  return { folder, pages, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
