//   virtual:messages/de         the German messages by the hash of the English one, half as large as the file
//   virtual:messages/de/model   those that only the page model.html says; the first table lacks them.
//                               Likewise training
//   virtual:messages/de/mechanisms        how to get those of one crafted page
//   virtual:messages/de/mechanisms/<id>   what that page says and no page of another kind
import { messageKey } from "../src/lib/message_key.ts";
import { craftedMessages, readMessages, spokenMessages } from "./messages.mjs";
import { isCrafted, mechanisms } from "./registry.mjs";

const ID = /^virtual:messages\/(\w+)(?:\/(\w+)(?:\/(\w+))?)?$/;

/** The table of a page; of a crafted one where `id` names it. */
function hashed(language, page, id) {
  const spoken = spokenMessages();
  const table = {};
  for (const [message, translation] of Object.entries(readMessages(language))) {
    const key = messageKey(message);
    if (key in table) throw new Error(`two messages have one hash, ${key}: “${message}”`);
    table[key] = { translation, page: spoken.get(message) };
  }
  const crafted = id && new Set([...craftedMessages(id)].map(messageKey));
  const wanted = Object.entries(table).filter(
    ([key, message]) => message.page === page && (!crafted || crafted.has(key)),
  );
  return Object.fromEntries(wanted.map(([key, { translation }]) => [key, translation]));
}

function craftedTables(language) {
  const lines = mechanisms
    .filter(({ id }) => isCrafted(id))
    .map(({ id }) => `${id}: () => import("virtual:messages/${language}/mechanisms/${id}"),`);
  return `export const tables = {${lines.join("")}};`;
}

export function translations() {
  return {
    name: "heed-translations",
    resolveId: (id) => (ID.test(id) ? `\0${id}` : undefined),
    load(id) {
      const [, language, page, crafted] = id.replace(/^\0/, "").match(ID) ?? [];
      if (!language) return undefined;
      if (page === "mechanisms" && !crafted) return craftedTables(language);
      return `export const messages = ${JSON.stringify(hashed(language, page ?? "", crafted))};`;
    },
  };
}
