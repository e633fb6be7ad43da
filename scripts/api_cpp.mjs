// The API reference of the C++ library, from the comments of its headers, as static pages of the site.
//   node scripts/api_cpp.mjs [folder]
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { run, which } from "./process.mjs";
import { treeVersion } from "./release.mjs";
import { main } from "./steps.mjs";
import { root, toolchain } from "./toolchain.mjs";

const inline = /\s(?:style|onclick)="[^"]*"/g;

// A strict policy wants no styles and no scripts inside of pages; none of these pages needs one.
export function strictPage(html, name) {
  const page = html.replaceAll(inline, "").replaceAll(/<script[^>]*>[^<]*<\/script>/g, "");
  if (/<script|<style|\son\w+="/.test(page)) {
    throw new Error(`${name}: has more that is inline than was known of`);
  }
  return page;
}

// Doxygen announces nested classes where all of them are private too, and then lists none.
const announced = /<a href="#nested-classes">Classes<\/a> &#124;\s*/;
const withoutDeadLink = (html) =>
  html.includes('id="nested-classes"') ? html : html.replace(announced, "");

function copyPages(from, to) {
  rmSync(to, { recursive: true, force: true });
  mkdirSync(to, { recursive: true });
  const pages = readdirSync(from).filter((name) => name.endsWith(".html"));
  for (const name of pages) {
    const page = strictPage(readFileSync(join(from, name), "utf8"), name);
    writeFileSync(join(to, name), withoutDeadLink(page));
  }
  cpSync(join(root, "scripts/doxygen/style.css"), join(to, "style.css"));
  return pages.length;
}

const ABSENT = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <title>The C++ API reference: heed</title>
  </head>
  <body>
    <p>This copy of the site was built without Doxygen: the headers in cpp/include/heed are the reference.</p>
  </body>
</html>
`;

// What the site's links lead to where there is no reference.
export function writeAbsence(folder) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "index.html"), ABSENT);
}

// Warnings are errors. Without Doxygen a page says that there is no reference.
export async function buildCppApi({ env }, folder) {
  if (!which("doxygen", env.PATH)) {
    console.log("doxygen is not here: the C++ API reference is skipped");
    writeAbsence(folder);
    return;
  }
  const output = mkdtempSync(join(tmpdir(), "heed-doxygen-"));
  const own = [`OUTPUT_DIRECTORY=${output}`, `PROJECT_NUMBER=${treeVersion()}`].join("\n");
  const settings = readFileSync(join(root, "scripts/doxygen/Doxyfile"), "utf8");
  try {
    writeFileSync(join(output, "Doxyfile"), `${settings}\n${own}\n`);
    await run("doxygen", [join(output, "Doxyfile")], { cwd: root, env, quiet: true });
    const count = copyPages(join(output, "html"), folder);
    console.log(`${count} pages of the C++ API reference in ${folder}`);
  } finally {
    rmSync(output, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await main(() => buildCppApi(toolchain(), process.argv[2] ?? join(root, "build/api-cpp")));
}
