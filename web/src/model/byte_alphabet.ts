// The letters in which GPT-2's tokenizers write bytes: printable ones stand for themselves, the others for
// 256, 257, ... in their order, so that a space is "Ġ".

function isPrintable(byte: number): boolean {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/** The letter of each byte. */
export const LETTERS: readonly string[] = (() => {
  let others = 256;
  return Array.from({ length: 256 }, (_, byte) =>
    String.fromCharCode(isPrintable(byte) ? byte : others++),
  );
})();

const BYTES: ReadonlyMap<string, number> = new Map(LETTERS.map((letter, byte) => [letter, byte]));

/** The bytes that letters stand for; null where one of them is no such letter. */
export function bytesOfLetters(letters: string): Uint8Array | null {
  const bytes = Array.from(letters, (letter) => BYTES.get(letter));
  return bytes.includes(undefined) ? null : Uint8Array.from(bytes as number[]);
}
