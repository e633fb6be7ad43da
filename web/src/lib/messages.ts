// The page's words in its language. The sources are in English; web/messages/<language>.json says each
// of their messages in another one, and arrives before anything that needs it is evaluated.
//   t`Query ${i} sees ${n} keys`   in code; the message is "Query {} sees {} keys"
// The text between tags in .svelte files needs no mark: web/vite/messages.mjs calls `pieces` for it.
import { messageKey } from "./message_key.js";

export type Language = "en" | "de";

/** Workers and tests have no page: they speak English. */
const page = typeof document === "undefined" ? null : document.documentElement;

export const language: Language = page?.lang === "de" ? "de" : "en";

/** Messages that only one page says, by its `data-messages`. */
const OWN: Readonly<Record<string, () => Promise<{ messages: Record<string, string> }>>> = {
  benchmarks: () => import("virtual:messages/de/benchmarks"),
  edge_cases: () => import("virtual:messages/de/edge_cases"),
  gallery: () => import("virtual:messages/de/gallery"),
  model: () => import("virtual:messages/de/model"),
  race: () => import("virtual:messages/de/race"),
  training: () => import("virtual:messages/de/training"),
};

/** Those that only the page of this mechanism says. */
async function ofMechanism() {
  const id = document.getElementById("app")?.dataset.mechanism;
  if (id === undefined) return undefined;
  const { tables } = await import("virtual:messages/de/mechanisms");
  return tables[id]?.();
}

/** The site's messages, and those of this page. */
async function german(): Promise<Readonly<Record<string, string>>> {
  const tables = [
    import("virtual:messages/de"),
    OWN[page?.dataset.messages ?? ""]?.(),
    ofMechanism(),
  ];
  return Object.assign({}, ...(await Promise.all(tables)).map((table) => table?.messages));
}

/** By the hash of the English message; null in English. */
const messages = language === "de" ? await german() : null;

/** No line ends between a number and its unit, nor between a head and its number. */
const PAIR =
  /(?<=[}\d>]) (?=(?:%|ms|µs|s|[GT]FLOP\/s|[kMG]B|[MG]iB|B)(?![\p{L}\d]))|(?<=\b(?:[Hh]ead|Kopf)) (?=[{\d])/gu;

/** What has been said, by its English message, and back. */
const spoken = new Map<string, string>();
const english = new Map<string, string>();

function said(message: string): string {
  const before = spoken.get(message);
  if (before !== undefined) return before;
  const words = (messages?.[messageKey(message)] ?? message).replace(PAIR, "\u00a0");
  spoken.set(message, words);
  english.set(words, message);
  return words;
}

/** The message that a translation is of. */
export const inEnglish = (translation: string): string => english.get(translation) ?? translation;

/** What stands for a value; a translation may name them out of order: {1} before {0}. */
const SLOT = /\{(\d*)\}/g;

export function t(strings: TemplateStringsArray, ...values: readonly unknown[]): string {
  let at = 0;
  return said(strings.join("{}")).replace(SLOT, (_, index: string) =>
    String(values[index === "" ? at++ : Number(index)]),
  );
}

/** A sentence of the registry, of a mechanism or a parameter, with the apostrophes of print. */
export const registrySentence = (summary: string): string => said(summary).replaceAll("'", "’");

/** Tags and values of a message, between which its pieces stand. */
const MARK = /<\/?\w+>|\{\}/;

/** The pieces of a message between its tags and values, which a translation keeps in their order. */
export const pieces = (message: string): readonly string[] => said(message).split(MARK);

/** A number as JavaScript writes it, with the decimal mark of a language. */
export const decimalIn = (of: Language, text: string): string =>
  of === "de" ? text.replace(".", ",") : text;

/** With that of the page. */
export const decimal = (value: number | string): string => decimalIn(language, String(value));

/** A title as a part of a sentence: German nouns keep their capital letter. */
export const inSentence = (title: string): string =>
  language === "de" ? title : title.toLowerCase();
