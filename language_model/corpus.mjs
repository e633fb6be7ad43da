// The text that is learned: the King James Bible of Debian's package bible-kjv-text, or a file.
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { capture, run } from "../scripts/process.mjs";
import { provide } from "../scripts/setup/provide.mjs";
import { debian } from "../scripts/setup/system.mjs";

const PACKAGE = "bible-kjv-text";

/** Downloads and unpacks the package, without installing it. */
async function unpackPackage(folder) {
  if (!debian()) throw new Error(`${PACKAGE} is a Debian package; elsewhere give --text FILE`);
  // Downloads land in a folder that apt's unprivileged user cannot write.
  const options = ["-q", "-o", "APT::Sandbox::User=root"];
  await run("apt-get", [...options, "download", PACKAGE], { cwd: folder, quiet: true });
  const file = readdirSync(folder).find((name) => name.endsWith(".deb"));
  await run("dpkg-deb", ["-x", join(folder, file), folder], { quiet: true });
  writeFileSync(
    join(folder, "version"),
    capture("dpkg-deb", ["-f", join(folder, file), "Version"]),
  );
}

/** The package's data file: a header and, from the first magic number on, one stream of compress(1). */
function decompress(data) {
  const begin = data.indexOf(Buffer.from([0x1f, 0x9d]));
  if (begin < 0) throw new Error("bible.data holds no compressed text");
  const { status, stdout } = spawnSync("gzip", ["-dc"], {
    input: data.subarray(begin),
    maxBuffer: 2 ** 26,
  });
  if (status !== 0) throw new Error("gzip -dc cannot read bible.data");
  return stdout.toString("latin1");
}

/**
 * Lines such as "Ge1:1 In the beginning" as chapters, { name: "Ge1", text }: verses without their
 * numbers, a line each.
 */
export function chaptersOf(lines) {
  const chapters = [];
  for (const line of lines) {
    const verse = /^(\d?[A-Z][A-Za-z]*\d+):\d+ (.*)$/.exec(line);
    if (!verse) continue;
    const [, name, text] = verse;
    if (chapters.at(-1)?.name !== name) chapters.push({ name, verses: [] });
    chapters.at(-1).verses.push(text.trim());
  }
  return chapters.map(({ name, verses }) => ({ name, text: verses.join("\n") }));
}

/** The chapters of the King James Bible. `cache` is a folder for what is downloaded. */
export async function kingJamesBible(cache) {
  mkdirSync(cache, { recursive: true });
  const folder = await provide(join(cache, PACKAGE), unpackPackage);
  const text = decompress(readFileSync(join(folder, "usr/lib/bible.data")));
  const version = readFileSync(join(folder, "version"), "utf8");
  return {
    name: "King James Bible",
    source: `Debian package ${PACKAGE} ${version}`,
    sections: chaptersOf(text.split("\n")),
  };
}

/** Any other text, and how it was named: its sections are what empty lines divide. */
export function textFile(path, source = path) {
  const text = readFileSync(path, "utf8").replaceAll("\r\n", "\n");
  const parts = text.split(/\n\s*\n/).map((part) => part.trim());
  const sections = parts.filter((part) => part !== "");
  return {
    name: basename(path),
    source,
    sections: sections.map((section, i) => ({ name: String(i + 1), text: section })),
  };
}

/** Of so many sections the last is never learned from. */
const HELD_OUT_EVERY = 20;

/** { every, train, heldOut }: of so many sections one is held out, and lists of sections. A text of fewer sections holds out its last. */
export function divide(sections) {
  const every = Math.min(HELD_OUT_EVERY, sections.length);
  if (every < 2) throw new Error("the text needs two sections, with an empty line between them");
  const isHeldOut = (_, i) => i % every === every - 1;
  return {
    every,
    train: sections.filter((section, i) => !isHeldOut(section, i)),
    heldOut: sections.filter(isHeldOut),
  };
}
