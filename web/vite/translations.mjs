//   virtual:messages/de         the German messages by the hash of the English one, half as large as the file
//   virtual:messages/de/model   those that only the page model.html says; the first table lacks them.
//                               Likewise benchmarks, gallery and training
//   virtual:messages/de/mechanisms        how to get those of one crafted page
//   virtual:messages/de/mechanisms/<id>   what that page says and no page of another kind
import { messageKey } from "../src/lib/message_key.ts";
import { craftedMessages, readMessages, spokenMessages } from "./messages.mjs";
import { mechanisms } from "./registry.mjs";

const ID = /^virtual:messages\/(\w+)(?:\/(\w+)(?:\/(\w+))?)?$/;

/** Every translation, and the page that alone says it, by the hash of its message. */
function keyed(language) {
  const spoken = spokenMessages();
  const table = new Map();
  for (const [message, translation] of Object.entries(readMessages(language))) {
    const key = messageKey(message);
    if (table.has(key)) throw new Error(`two messages have one hash, ${key}: “${message}”`);
    table.set(key, { translation, page: spoken.get(message) });
  }
  return table;
}

/** The table of a page; of a crafted one where `id` names it. */
function hashed(table, page, id) {
  const crafted = id && new Set([...craftedMessages(id)].map(messageKey));
  const wanted = [...table].filter(
    ([key, message]) => message.page === page && (!crafted || crafted.has(key)),
  );
  return Object.fromEntries(wanted.map(([key, { translation }]) => [key, translation]));
}

function craftedTables(language) {
  const lines = mechanisms.map(
    ({ id }) => `${id}: () => import("virtual:messages/${language}/mechanisms/${id}"),`,
  );
  return `export const tables = {${lines.join("")}};`;
}

export function translations() {
  const languages = new Map();
  const tableOf = (language) => {
    if (!languages.has(language)) languages.set(language, keyed(language));
    return languages.get(language);
  };
  return {
    name: "heed-translations",
    buildStart: () => languages.clear(),
    resolveId: (id) => (ID.test(id) ? `\0${id}` : undefined),
    load(id) {
      const [, language, page, crafted] = id.replace(/^\0/, "").match(ID) ?? [];
      if (!language) return undefined;
      if (page === "mechanisms" && !crafted) return craftedTables(language);
      return `export const messages = ${JSON.stringify(hashed(tableOf(language), page ?? "", crafted))};`;
    },
  };
}

const NO_TABLES = "\0heed:no-messages";

/** In place of them where English alone is spoken: in workers and in the custom element. */
export const englishOnly = () => ({
  name: "heed-english-only",
  resolveId: (id) => (id.startsWith("virtual:messages/") ? NO_TABLES : undefined),
  load: (id) => (id === NO_TABLES ? "export const messages = {}, tables = {};" : undefined),
});
