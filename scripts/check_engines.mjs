// npm run test:engines: the built site and the package in Firefox and in WebKit, where these are installed
// (Debian: firefox-esr; webkit2gtk-driver and xvfb). Needs dist/ and build/web/ (npm run build).
//   npm run test:engines -- --engine webkit --only gallery,mechanisms/sink
//   npm run test:engines -- --screenshots build/engines      every page, light and dark, wide and phone
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { commandLine, refuseUnknown, typedPath } from "./command_line.mjs";
import { acts } from "./engines/acts.mjs";
import { findFirefox, startFirefox } from "./engines/firefox.mjs";
import { makeFolder } from "./engines/folder.mjs";
import { checkElement, checkPackage } from "./engines/package.mjs";
import { visit } from "./engines/site.mjs";
import { findWebKit, startWebKit } from "./engines/webkit.mjs";
import { serve } from "./serve.mjs";
import { main } from "./steps.mjs";
import { root } from "./toolchain.mjs";

const engines = {
  firefox: { find: findFirefox, start: startFirefox, packages: "firefox-esr" },
  webkit: { find: findWebKit, start: startWebKit, packages: "webkit2gtk-driver and xvfb" },
};
const sizes = { wide: { width: 1280, height: 860 }, phone: { width: 390, height: 844 } };

async function picture(engine, folder, path, size) {
  const setTheme = (theme) => {
    const select = document.querySelector("header.site select");
    select.value = theme;
    select.dispatchEvent(new Event("change", { bubbles: true }));
  };
  // The last one is remembered: all pages are checked as the system has it.
  for (const theme of ["light", "dark", "auto"]) {
    await engine.evaluate(setTheme, theme);
    if (theme === "auto") return;
    await new Promise((resolve) => setTimeout(resolve, 400));
    const name = `${engine.name}-${path.replaceAll("/", "-").replace(".html", "")}-${size}-${theme}.png`;
    writeFileSync(join(folder, name), await engine.screenshot());
  }
}

async function checkPages(engine, address, pages, screenshots) {
  let bad = 0;
  for (const path of pages) {
    for (const [name, size] of Object.entries(sizes)) {
      const { seen, faults } = await visit(engine, address, path, size);
      if (screenshots) await picture(engine, screenshots, path, name);
      const mark = faults.length > 0 ? "WRONG" : "right";
      console.log(`  ${mark} ${path}, ${name}: ${faults.join("; ") || seen.agreements.join(", ")}`);
      bad += faults.length > 0 ? 1 : 0;
    }
  }
  return bad;
}

async function checkActs(engine, address) {
  let bad = 0;
  for (const [name, act] of Object.entries(acts)) {
    const fault = await act(engine, address).catch(String);
    console.log(`  ${fault ? "WRONG" : "right"} ${name}${fault ? `: ${fault}` : ""}`);
    bad += fault ? 1 : 0;
  }
  return bad;
}

async function check(engine, address, { pages, screenshots }) {
  console.log(`${engine.name} ${engine.version}`);
  const { lines, faults } = await checkPackage(engine, address);
  for (const line of lines) console.log(`  right ${line}`);
  for (const fault of [...faults, ...(await checkElement(engine, address))]) {
    console.log(`  WRONG ${fault}`);
    faults.push(fault);
  }
  const bad = faults.length + (await checkActs(engine, address));
  return bad + (await checkPages(engine, address, pages, screenshots));
}

function readOptions(args) {
  const { engine, only, screenshots } = parseArgs({
    args,
    options: {
      engine: { type: "string", default: Object.keys(engines).join(",") },
      only: { type: "string" },
      screenshots: { type: "string" },
    },
  }).values;
  const names = engine.split(",");
  refuseUnknown("--engine", names, Object.keys(engines));
  return { names, only: only?.split(","), screenshots: typedPath(screenshots) };
}

function choosePages(all, only) {
  const chosen = all.filter((path) => !only || only.includes(path.replace(".html", "")));
  if (chosen.length === 0) throw new Error(`--only ${only}: the site has no such page`);
  return chosen;
}

const { names, only, screenshots } = await commandLine(import.meta.url, readOptions);

await main(async () => {
  for (const needed of ["dist/index.js", "build/web/index.html"]) {
    if (!existsSync(join(root, needed))) throw new Error(`${needed} is not built: npm run build`);
  }
  if (screenshots) mkdirSync(screenshots, { recursive: true });
  const { folder, pages, remove } = makeFolder();
  const server = await serve(folder);
  let bad = 0;
  try {
    for (const name of names) {
      const { find, start, packages } = engines[name];
      const program = find();
      if (!program) {
        console.log(`SKIPPED ${name}: it is not installed (Debian: ${packages})`);
        continue;
      }
      const engine = await start(program);
      try {
        const chosen = choosePages(pages, only);
        bad += await check(engine, server.url, { pages: chosen, screenshots });
      } finally {
        await engine.close();
      }
    }
  } finally {
    server.close();
    remove();
  }
  if (bad > 0) throw new Error(`${bad} checks went wrong`);
});
