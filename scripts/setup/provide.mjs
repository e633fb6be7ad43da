// A tool in the cache folder is complete or absent, whenever a run was interrupted: it is built in
// a temporary folder, stamped, and renamed into place.
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const stampName = ".complete";

export function isProvided(folder) {
  return existsSync(join(folder, stampName));
}

// `build(partial)` fills a folder that will later be found at `folder`.
export async function provide(folder, build) {
  if (isProvided(folder)) return folder;
  const partial = `${folder}.partial`;
  rmSync(partial, { recursive: true, force: true });
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true });
  await build(partial);
  writeFileSync(join(partial, stampName), "");
  renameSync(partial, folder);
  return folder;
}
