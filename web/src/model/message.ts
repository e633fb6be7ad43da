// Sentences of the worker, which does not know the page's language: the words of a message and its
// values travel, and the page says them (`messageText` of model_client.ts).

export interface Message {
  /** The pieces of the message between its values. */
  readonly words: readonly string[];
  readonly values: readonly (string | number)[];
}

/** The same tag as lib/messages.ts has, so that its messages are found and translated. */
export const t = (words: TemplateStringsArray, ...values: (string | number)[]): Message => ({
  words: [...words],
  values,
});

/** In English. */
export const inEnglish = ({ words, values }: Message): string =>
  words.map((word, at) => word + (at < values.length ? String(values[at]) : "")).join("");

/** The most letters of a name that messages show. */
const SHOWN = 80;

/** A name out of a file, cut, without control characters. */
export function shown(name: string): string {
  const clean = name.slice(0, SHOWN).replace(/[\p{C}\p{Z}]/gu, " ");
  return name.length > SHOWN ? `${clean}…` : clean;
}
