// Where the characters of UTF-8 bytes lie, when they are no UTF-8 too.

export interface Characters {
  /** Each byte that belongs to no character is U+FFFD. */
  readonly text: string;
  /** For each byte the UTF-16 places, [start, end), of its character. */
  readonly starts: readonly number[];
  readonly ends: readonly number[];
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The text of bytes; null where they are not UTF-8. */
export function textOf(bytes: Uint8Array): string | null {
  try {
    return decoder.decode(bytes);
  } catch {
    return null;
  }
}

/** By the first byte alone. */
const lengthOf = (first: number): number =>
  first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;

export function readCharacters(bytes: Uint8Array): Characters {
  const [starts, ends]: [number[], number[]] = [[], []];
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const length = lengthOf(bytes[at] as number);
    const character = textOf(bytes.subarray(at, at + length));
    const count = character === null ? 1 : Math.min(length, bytes.length - at);
    const start = text.length;
    text += character ?? "\ufffd";
    for (let n = 0; n < count; n++) {
      starts.push(start);
      ends.push(text.length);
    }
    at += count;
  }
  return { text, starts, ends };
}
