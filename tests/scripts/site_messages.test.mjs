// The German table of each crafted page holds all that the page can say, whatever it fetches later, and no other
// build needs the tables.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { root } from "../../scripts/toolchain.mjs";
import { craftedMessages, spokenMessages } from "../../web/vite/messages.mjs";
import { mechanisms } from "../../web/vite/registry.mjs";

const crafted = mechanisms.map(({ id }) => id);

test("EveryMessageOfTheMechanismsIsInTheTableOfOneOfThem", () => {
  const said = new Set(crafted.flatMap((id) => [...craftedMessages(id)]));
  const own = [...spokenMessages()].filter(([, page]) => page === "mechanisms");
  assert.ok(own.length > 100);
  const missing = own.map(([message]) => message).filter((message) => !said.has(message));
  assert.deepEqual(missing, []);
});

test("WhatAPageFetchesLaterIsInItsTable", () => {
  assert.ok(craftedMessages("scaled_dot_product").has("mean weight"));
});

test("TheConfigurationOfTheSiteResolvesAllThatItImports", () => {
  const script = `
    import { loadConfigFromFile } from "vite";
    const loaded = await loadConfigFromFile({ command: "build", mode: "production" }, "web/vite.config.ts");
    console.log(loaded.config.base);`;
  const options = { cwd: root, encoding: "utf8" };
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ["--input-type=module", "-e", script],
    options,
  );
  assert.equal(stdout, "./\n", stderr);
  assert.doesNotMatch(stderr, /UNRESOLVED_IMPORT|Could not resolve/);
});
