// The API reference of the npm package, from its doc comments, as static pages of the site.
//   node scripts/api.mjs [folder]
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { run } from "./process.mjs";
import { main } from "./steps.mjs";
import { root, toolchain } from "./toolchain.mjs";

// Its script adds an empty style sheet for filters, which this reference does not have.
const styleSheet = 'document.head.appendChild(document.createElement("style"))';
const inlineScript = /<script>([^<]+)<\/script>/;

// TypeDoc writes one script into each page, the same in all: a strict policy wants it in a file.
function moveScripts(folder) {
  const pages = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(".html"));
  let moved;
  for (const name of pages) {
    const file = join(folder, name);
    const html = readFileSync(file, "utf8");
    const script = inlineScript.exec(html)?.[1];
    if (script === undefined || (moved ?? script) !== script) {
      throw new Error(`${name}: expected the one script that every page of TypeDoc has`);
    }
    moved = script;
    const up = relative(join(folder, name, ".."), folder);
    const path = `${up === "" ? "" : `${up}/`}assets/page.js`;
    // What bindings/typedoc.json links as "#site" is the folder above this one.
    const home = `href="${up === "" ? "" : `${up}/`}../index.html"`;
    const linked = html.replaceAll('href="#site"', home);
    const page = linked.replace(inlineScript, () => `<script src="${path}"></script>`);
    if (/<script>|\sstyle="|<style|\son\w+="/.test(page)) {
      throw new Error(`${name}: has more that is inline than was known of`);
    }
    writeFileSync(file, page);
  }
  writeFileSync(join(folder, "assets/page.js"), `${moved}\n`);
  const script = readFileSync(join(folder, "assets/main.js"), "utf8");
  if (!script.includes(styleSheet))
    throw new Error("TypeDoc's script is not the one that was known");
  writeFileSync(
    join(folder, "assets/main.js"),
    script.replace(styleSheet, 'document.createElement("style")'),
  );
  return pages.length;
}

export async function buildApi(tools, folder) {
  const typedoc = join(root, "node_modules/typedoc/bin/typedoc");
  const options = ["--options", join(root, "bindings/typedoc.json"), "--out", folder];
  await run(process.execPath, [typedoc, ...options], { cwd: root, env: tools.env, quiet: true });
  console.log(`${moveScripts(folder)} pages of the API reference in ${folder}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await main(() => buildApi(toolchain(), process.argv[2] ?? join(root, "build/api")));
}
