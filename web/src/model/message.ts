// Sentences of the worker, which does not know the page's language: the words of a message and its
// values travel, and the page says them.

type Value = string | number | Message;

export interface Message {
  /** The pieces of the message between its values. */
  readonly words: readonly string[];
  readonly values: readonly Value[];
}

/** The same tag as lib/messages.ts has, so that its messages are found and translated. */
export const t = (words: TemplateStringsArray, ...values: Value[]): Message => ({
  words: [...words],
  values,
});

/** A message as `say` says it, the messages among its values first. */
export function spell(
  { words, values }: Message,
  say: (words: readonly string[], values: readonly (string | number)[]) => string,
): string {
  return say(
    words,
    values.map((value) => (typeof value === "object" ? spell(value, say) : value)),
  );
}

/** In English. */
export const inEnglish = (message: Message): string =>
  spell(message, (words, values) =>
    words.map((word, at) => word + (at < values.length ? String(values[at]) : "")).join(""),
  );

/** The most letters of a name that messages show. */
const SHOWN = 80;

/** A name out of a file, cut, without control characters. */
export function shown(name: string): string {
  const clean = name.slice(0, SHOWN).replace(/[\p{C}\p{Z}]/gu, " ");
  return name.length > SHOWN ? `${clean}…` : clean;
}
