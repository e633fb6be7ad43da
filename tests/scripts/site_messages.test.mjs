// The German table of each crafted page holds all that the page can say, whatever it fetches later.
import assert from "node:assert/strict";
import { test } from "node:test";
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
