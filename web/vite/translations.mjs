//   virtual:messages/de   the German messages by the hash of the English one, half as large as the file
import { messageKey } from "../src/lib/message_key.ts";
import { readMessages } from "./messages.mjs";

const ID = /^virtual:messages\/(\w+)$/;

function hashed(language) {
  const table = {};
  for (const [message, translation] of Object.entries(readMessages(language))) {
    const key = messageKey(message);
    if (key in table) throw new Error(`two messages have one hash, ${key}: “${message}”`);
    table[key] = translation;
  }
  return table;
}

export function translations() {
  return {
    name: "heed-translations",
    resolveId: (id) => (ID.test(id) ? `\0${id}` : undefined),
    load(id) {
      const language = id.replace(/^\0/, "").match(ID)?.[1];
      return language ? `export const messages = ${JSON.stringify(hashed(language))};` : undefined;
    },
  };
}
