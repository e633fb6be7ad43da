//   virtual:messages/de         the German messages by the hash of the English one, half as large as the file
//   virtual:messages/de/model   those that only the page model.html says; the first table lacks them.
//                               Likewise training
import { messageKey } from "../src/lib/message_key.ts";
import { readMessages, spokenMessages } from "./messages.mjs";

const ID = /^virtual:messages\/(\w+)(?:\/(\w+))?$/;

function hashed(language, page) {
  const spoken = spokenMessages();
  const table = {};
  for (const [message, translation] of Object.entries(readMessages(language))) {
    const key = messageKey(message);
    if (key in table) throw new Error(`two messages have one hash, ${key}: “${message}”`);
    table[key] = { translation, page: spoken.get(message) };
  }
  const wanted = Object.entries(table).filter(([, message]) => message.page === page);
  return Object.fromEntries(wanted.map(([key, { translation }]) => [key, translation]));
}

export function translations() {
  return {
    name: "heed-translations",
    resolveId: (id) => (ID.test(id) ? `\0${id}` : undefined),
    load(id) {
      const [, language, page] = id.replace(/^\0/, "").match(ID) ?? [];
      if (!language) return undefined;
      return `export const messages = ${JSON.stringify(hashed(language, page ?? ""))};`;
    },
  };
}
