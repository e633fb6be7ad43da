// Packages of another Debian suite without touching the system's apt: a private state folder with
// one source entry, copied from the machine's own configuration (so from its own mirror).
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "../process.mjs";

function readIfThere(file) {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

// deb822 stanzas as maps with lower-case keys; comments dropped, folded lines joined.
function stanzas(text) {
  return text
    .replace(/^#.*\n?/gm, "")
    .replace(/\n[ \t]+/g, " ")
    .split(/\n\s*\n/)
    .map((block) => {
      const fields = block.matchAll(/^([\w-]+):[ \t]*(.*)$/gm);
      return Object.fromEntries([...fields].map(([, key, value]) => [key.toLowerCase(), value]));
    });
}

// The one-line style: deb [options] uri suite components.
function oneLiners(text) {
  const lines = text.matchAll(/^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.+)$/gm);
  return [...lines].map(([, options = "", uris, suites, components]) => {
    const signedBy = /signed-by=(\S+)/.exec(options)?.[1];
    return { types: "deb", uris, suites, components, ...(signedBy && { "signed-by": signedBy }) };
  });
}

// The entry from which this machine gets its own release's `main`.
export function ownSource(codename, etc = "/etc/apt") {
  const parts = join(etc, "sources.list.d");
  let names = [];
  try {
    names = readdirSync(parts).sort();
  } catch {}
  const entries = oneLiners(readIfThere(join(etc, "sources.list")));
  for (const name of names) {
    const text = readIfThere(join(parts, name));
    if (name.endsWith(".list")) entries.push(...oneLiners(text));
    if (name.endsWith(".sources")) entries.push(...stanzas(text));
  }
  return entries.find(
    ({ types = "", uris, suites = "", components = "" }) =>
      uris &&
      types.split(/\s+/).includes("deb") &&
      suites.split(/\s+/).includes(codename) &&
      components.split(/\s+/).includes("main"),
  );
}

// Returns a function that runs apt-get on that private state, with `suite` as its only source.
export async function privateApt(folder, codename, suite) {
  const source = ownSource(codename);
  if (!source) throw new Error(`no apt source for ${codename} main found in /etc/apt`);
  for (const name of ["parts", "lists/partial", "cache/archives/partial"]) {
    mkdirSync(join(folder, name), { recursive: true });
  }
  const fields = [
    `Types: deb deb-src`,
    `URIs: ${source.uris}`,
    `Suites: ${suite}`,
    `Components: main`,
  ];
  if (source["signed-by"]) fields.push(`Signed-By: ${source["signed-by"]}`);
  writeFileSync(join(folder, "parts", "suite.sources"), `${fields.join("\n")}\n`);
  const settings = {
    "Dir::Etc::SourceList": "/dev/null",
    "Dir::Etc::SourceParts": join(folder, "parts"),
    "Dir::State::Lists": join(folder, "lists"),
    "Dir::Cache": join(folder, "cache"),
    "Dir::State::status": "/dev/null",
    // Downloads land in folders that apt's unprivileged user cannot write.
    "APT::Sandbox::User": "root",
  };
  const options = Object.entries(settings).flatMap(([key, value]) => ["-o", `${key}=${value}`]);
  const aptGet = (args, cwd = folder) =>
    run("apt-get", ["-q", ...options, ...args], { cwd, quiet: true });
  await aptGet(["update"]);
  return aptGet;
}
