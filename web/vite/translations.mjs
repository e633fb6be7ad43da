//   virtual:messages/de            the German messages by the hash of the English one, half as large as
//                                  the file, and where those are that only one page has
//   virtual:messages/de/training   those of a folder of src/ that has many
import { messageKey } from "../src/lib/message_key.ts";
import { messagesOnlyIn, readMessages } from "./messages.mjs";

const ID = /^virtual:messages\/(\w+)(?:\/(\w+))?$/;
/** Folders of src/ whose messages other pages need not fetch; their page says data-messages="...". */
const APART = ["training"];

function hashed(translations) {
  const table = {};
  for (const [message, translation] of Object.entries(translations)) {
    const key = messageKey(message);
    if (key in table) throw new Error(`two messages have one hash, ${key}: “${message}”`);
    table[key] = translation;
  }
  return table;
}

/** By the folder that has them apart, or by "" for all others. */
function dealt(language) {
  const translations = readMessages(language);
  // All together: a page has two parts, in which no hash may stand twice.
  const table = hashed(translations);
  const parts = { "": table };
  for (const folder of APART) {
    parts[folder] = {};
    for (const message of messagesOnlyIn(folder)) {
      const key = messageKey(message);
      parts[folder][key] = table[key];
      delete table[key];
    }
  }
  return parts;
}

export function translations() {
  return {
    name: "heed-translations",
    resolveId: (id) => (ID.test(id) ? `\0${id}` : undefined),
    load(id) {
      const [, language, folder = ""] = id.replace(/^\0/, "").match(ID) ?? [];
      if (language === undefined) return undefined;
      const messages = `export const messages = ${JSON.stringify(dealt(language)[folder])};`;
      if (folder !== "") return messages;
      const parts = APART.map(
        (part) => `${part}: () => import("virtual:messages/${language}/${part}")`,
      );
      return `${messages}\nexport const parts = { ${parts.join(", ")} };`;
    },
  };
}
