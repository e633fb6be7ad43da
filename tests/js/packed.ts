// The packed package, installed where nothing else is.
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
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

export const tarballIn = (folder: string): string =>
  readdirSync(folder).find((name) => name.endsWith(".tgz")) ?? "";

/** A new folder with the packed package installed in it, and nothing else than a copy of `project`. */
export function installPacked(project?: string): { folder: string; remove: () => void } {
  const folder = mkdtempSync(join(tmpdir(), "heed-package-"));
  runIn(root, "npm", "pack", "--ignore-scripts", "--pack-destination", folder);
  const manifest = '{ "private": true, "type": "module" }';
  if (project === undefined) writeFileSync(join(folder, "package.json"), manifest);
  else cpSync(project, folder, { recursive: true });
  const options = ["--no-audit", "--no-fund", "--offline", "--no-save", "--ignore-scripts"];
  runIn(folder, "npm", "install", ...options, `./${tarballIn(folder)}`);
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
