// The machine's own apt source is found in both styles of configuration.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { ownSource } from "../../scripts/setup/private_apt.mjs";

const all = mkdtempSync(join(tmpdir(), "heed-apt-"));
after(() => rmSync(all, { recursive: true }));

function etc(files) {
  const folder = mkdtempSync(join(all, "etc-"));
  mkdirSync(join(folder, "sources.list.d"));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return folder;
}

test("FindsAStanzaOfTheOwnRelease", () => {
  const folder = etc({
    "sources.list.d/other.sources":
      "Types: deb\nURIs: http://other/apt\nSuites: stable\nComponents: main\n",
    "sources.list.d/own.sources": [
      "Types: deb",
      "# a comment inside",
      "URIs: http://mirror/security",
      "Suites: bookworm-security",
      "Components: main",
      "",
      "Types: deb",
      "URIs: http://mirror/debian",
      "Suites: bookworm bookworm-updates",
      "Components: main contrib",
      "Signed-By: /keys/debian.gpg",
    ].join("\n"),
  });
  const source = ownSource("bookworm", folder);
  assert.equal(source.uris, "http://mirror/debian");
  assert.equal(source["signed-by"], "/keys/debian.gpg");
});

test("FindsALineOfTheOwnRelease", () => {
  const folder = etc({
    "sources.list": [
      "# deb http://commented/debian bookworm main",
      "deb-src http://mirror/debian bookworm main",
      "deb [arch=amd64 signed-by=/keys/a.gpg] http://mirror/debian bookworm main non-free",
    ].join("\n"),
  });
  const source = ownSource("bookworm", folder);
  assert.equal(source.uris, "http://mirror/debian");
  assert.equal(source["signed-by"], "/keys/a.gpg");
});

test("SaysNothingWithoutOne", () => {
  assert.equal(ownSource("bookworm", etc({})), undefined);
  assert.equal(ownSource("bookworm", "/does/not/exist"), undefined);
});
