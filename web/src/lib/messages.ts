// The page's words in its language. The sources are in English; web/messages/<language>.json says each
// of their messages in another one, and arrives before anything that needs it is evaluated.
//   t`Query ${i} sees ${n} keys`   in code; the message is "Query {} sees {} keys"
// The text between tags in .svelte files needs no mark: web/vite/messages.mjs calls `pieces` for it.

export type Language = "en" | "de";

/** Workers and tests have no page: they speak English. */
const page = typeof document === "undefined" ? null : document.documentElement;

export const language: Language = page?.lang === "de" ? "de" : "en";

type Messages = Readonly<Record<string, string>>;

const messages: Messages =
  language === "de" ? ((await import("../../messages/de.json")).default as Messages) : {};

/** What stands for a value; a translation may name them out of order: {1} before {0}. */
const SLOT = /\{(\d*)\}/g;

export function t(strings: TemplateStringsArray, ...values: readonly unknown[]): string {
  let at = 0;
  return (messages[strings.join("{}")] ?? strings.join("{}")).replace(SLOT, (_, index: string) =>
    String(values[index === "" ? at++ : Number(index)]),
  );
}

/** Tags and values of a message, between which its pieces stand. */
const MARK = /<\/?\w+>|\{\}/;

/** The pieces of a message between its tags and values, which a translation keeps in their order. */
export const pieces = (message: string): readonly string[] =>
  (messages[message] ?? message).split(MARK);

/** A message that is known only when it is read: a title from the list of mechanisms. */
export const translated = (message: string): string => messages[message] ?? message;

/** The message that a translation is of. */
export const inEnglish = (said: string): string =>
  Object.keys(messages).find((message) => messages[message] === said) ?? said;

/** Whether the message has a translation, or needs none. */
export const isTranslated = (message: string): boolean => language === "en" || message in messages;

/** A number as JavaScript writes it, with the language's decimal mark. */
export const decimal = (text: string): string =>
  language === "de" ? text.replace(".", ",") : text;
