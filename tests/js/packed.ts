// The packed package, installed where nothing else is.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "./support.js";

export const fixtures: string = `${root}bindings/fixtures`;

export const runIn = (cwd: string, program: string, ...args: string[]): string =>
  execFileSync(program, args, {
    cwd,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 110_000,
  });

/** Files below a folder, as paths relative to it. */
export const filesIn = (path: string): string[] =>
  readdirSync(path, { recursive: true }).map(String).sort();

/** An empty folder with the packed package installed in it, and nothing else. */
export function installPacked(): { folder: string; remove: () => void } {
  const folder = mkdtempSync(join(tmpdir(), "heed-package-"));
  runIn(root, "npm", "pack", "--ignore-scripts", "--pack-destination", folder);
  const tarball = readdirSync(folder).find((name) => name.endsWith(".tgz")) ?? "";
  writeFileSync(join(folder, "package.json"), '{ "private": true, "type": "module" }');
  runIn(folder, "npm", "install", "--no-audit", "--no-fund", "--offline", `./${tarball}`);
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
