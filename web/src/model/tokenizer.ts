// Text to tokens and back, without loss: the bytes of the tokens are those of the text.
import { mergeWord } from "./bpe.js";
import { bytesOfLetters, LETTERS } from "./byte_alphabet.js";
import { type Characters, readCharacters, textOf } from "./characters.js";
import { shown, t } from "./message.js";
import { refuse } from "./model_error.js";
import type { Encoded, Piece } from "./model_types.js";
import type { AddedToken, TokenizerFile } from "./tokenizer_file.js";

/** The most UTF-16 units of a text. */
export const MOST_LETTERS = 100_000;
const SPACE = "▁";

const encoder = new TextEncoder();

const hex = (byte: number): string => byte.toString(16).padStart(2, "0").toUpperCase();

/** "<0xE2>": a byte that no other token holds. */
const BYTE_TOKEN = /^<0x([0-9A-F]{2})>$/;

/** A section of a text: words to encode, or a token that stands in it. */
type Section = string | AddedToken;

/** Text to tokens and back. */
export interface TextCoder {
  /** Throws ModelError. */
  encode(text: string): Encoded;
  decode(ids: readonly number[]): string;
  /** Of ids that were not encoded from a text. */
  pieces(ids: readonly number[]): readonly Piece[];
  /** What a token adds to a text that is being written. */
  textBytes(id: number): Uint8Array;
}

export class Tokenizer implements TextCoder {
  /** By id; undefined where the file has none. */
  private readonly bytes: (Uint8Array | undefined)[] = [];
  private readonly specials = new Set<number>();
  /** By their first letter, longest first. */
  private readonly added = new Map<string, AddedToken[]>();
  /** Ids of the tokens of single bytes. */
  private readonly byteIds: readonly (number | undefined)[];

  /** Throws ModelError ("bad-tokenizer"). */
  constructor(private readonly file: TokenizerFile) {
    const { vocabulary, bytes } = file;
    for (const [token, id] of vocabulary) this.bytes[id] = this.bytesOfToken(token);
    for (const token of file.added) this.add(token);
    this.byteIds = LETTERS.map((letter, byte) =>
      vocabulary.get(bytes ? letter : `<0x${hex(byte)}>`),
    );
    for (const id of [...file.before, ...file.after])
      if (this.bytes[id] === undefined)
        refuse(
          "bad-tokenizer",
          t`tokenizer.json cannot be used: its template names the id ${id}, which no token has.`,
        );
  }

  /** One more than the largest id. */
  get size(): number {
    return this.bytes.length;
  }

  /** Throws ModelError ("too-long", or "bad-request" for a letter without a token). */
  encode(given: string): Encoded {
    if (given.length > MOST_LETTERS)
      refuse(
        "too-long",
        t`The text has ${given.length} letters; at most ${MOST_LETTERS} are encoded.`,
      );
    const pieces: Piece[] = this.file.before.map((id) => this.piece(id, 0, 0, true));
    let text = "";
    for (const section of this.sections(given)) {
      if (typeof section === "string") {
        const own = this.normalized(section);
        for (const piece of this.encodeSection(own, text.length)) pieces.push(piece);
        text += own;
      } else {
        const { id, content, special } = section;
        pieces.push(this.piece(id, text.length, text.length + content.length, special));
        text += content;
      }
    }
    for (const id of this.file.after) pieces.push(this.piece(id, text.length, text.length, true));
    return { text, ids: pieces.map(({ id }) => id), pieces };
  }

  /** Special tokens and unknown ids are left out. */
  decode(ids: readonly number[]): string {
    return this.decoded(ids).text;
  }

  /** The pieces of ids, placed in their decoded text. */
  pieces(ids: readonly number[]): Piece[] {
    const { text, starts, ends } = this.decoded(ids);
    let at = 0;
    return ids.map((id) => {
      const begin = at;
      const special = this.specials.has(id);
      if (!special) at += this.bytesOf(id).length;
      const start = starts[begin] ?? text.length;
      return this.piece(id, start, at > begin ? (ends[at - 1] ?? start) : start, special);
    });
  }

  /** None for special tokens and unknown ids. */
  textBytes(id: number): Uint8Array {
    return this.specials.has(id) ? new Uint8Array() : this.bytesOf(id);
  }

  private bytesOf(id: number): Uint8Array {
    return this.bytes[id] ?? new Uint8Array();
  }

  private bytesOfToken(token: string): Uint8Array {
    if (this.file.bytes) return bytesOfLetters(token) ?? encoder.encode(token);
    const byte = this.file.byteFallback ? BYTE_TOKEN.exec(token) : null;
    if (byte) return Uint8Array.of(Number.parseInt(byte[1] as string, 16));
    return encoder.encode(token.replaceAll(SPACE, " "));
  }

  private add(token: AddedToken): void {
    this.bytes[token.id] = encoder.encode(token.content);
    if (token.special) this.specials.add(token.id);
    const first = token.content[0] as string;
    const others = this.added.get(first) ?? [];
    others.push(token);
    others.sort((a, b) => b.content.length - a.content.length);
    this.added.set(first, others);
  }

  /** The text without what a tokenizer like Llama 2's puts before it. */
  private decoded(ids: readonly number[]): Characters {
    const bytes = ids.flatMap((id) => [...this.textBytes(id)]);
    const all = readCharacters(Uint8Array.from(bytes));
    if (this.file.prefix === "never" || this.file.bytes || all.text[0] !== " ") return all;
    const shifted = (places: readonly number[]) => places.map((place) => Math.max(0, place - 1));
    return { text: all.text.slice(1), starts: shifted(all.starts), ends: shifted(all.ends) };
  }

  private piece(id: number, start: number, end: number, special: boolean): Piece {
    const bytes = this.bytesOf(id);
    const text = textOf(bytes);
    const part = text === null;
    return { id, text: text ?? Array.from(bytes, hex).join(" "), part, special, start, end };
  }

  private *sections(text: string): Generator<Section> {
    let begin = 0;
    for (let at = 0; at < text.length; ) {
      const found = this.added
        .get(text[at] as string)
        ?.find(({ content }) => text.startsWith(content, at));
      if (found === undefined) {
        at++;
        continue;
      }
      if (at > begin) yield text.slice(begin, at);
      yield found;
      at += found.content.length;
      begin = at;
    }
    if (begin < text.length) yield text.slice(begin);
  }

  /** What the tokenizer sees; lone surrogates are U+FFFD. */
  private normalized(section: string): string {
    const { bytes, compose } = this.file;
    const formed = section.replace(/\p{Surrogate}/gu, "\ufffd");
    const spaced = bytes ? formed : formed.replaceAll(SPACE, " ");
    return compose ? spaced.normalize("NFC") : spaced;
  }

  /** Whether a space is put before a text that begins at `place`. */
  private isPrefixed(text: string, place: number): boolean {
    const { prefix } = this.file;
    if (prefix === "any") return true;
    const isAsked = prefix === "always" || (prefix === "first" && place === 0);
    return isAsked && !text.startsWith(" ");
  }

  private encodeSection(text: string, place: number): Piece[] {
    const before = this.isPrefixed(text, place) ? 1 : 0;
    const { starts, ends } = readCharacters(encoder.encode(text));
    const whole = (before ? " " : "") + text;
    let words: readonly string[] = [this.file.bytes ? whole : whole.replaceAll(" ", SPACE)];
    for (const split of this.file.splits) words = words.flatMap(split);
    let at = -before;
    return words
      .flatMap((word) => this.encodeWord(word))
      .map((id) => {
        const begin = Math.max(at, 0);
        at += this.bytesOf(id).length;
        const start = starts[begin] ?? text.length;
        return this.piece(
          id,
          place + start,
          place + (at > begin ? (ends[at - 1] ?? start) : start),
          false,
        );
      });
  }

  private encodeWord(word: string): readonly number[] {
    const { bytes, ignoreMerges, merges, vocabulary } = this.file;
    const raw = bytes ? encoder.encode(word) : null;
    if (ignoreMerges) {
      const id = vocabulary.get(raw ? Array.from(raw, (byte) => LETTERS[byte]).join("") : word);
      if (id !== undefined) return [id];
    }
    const symbols = raw
      ? Array.from(raw, (byte) => this.byteId(byte, word))
      : Array.from(word).flatMap((letter) => this.letterIds(letter));
    return mergeWord(symbols, merges);
  }

  private byteId(byte: number, word: string): number {
    const id = this.byteIds[byte];
    if (id !== undefined) return id;
    return refuse(
      "bad-request",
      t`The tokenizer has no token for the byte ${hex(byte)} in “${shown(word)}”.`,
    );
  }

  private letterIds(letter: string): readonly number[] {
    const id = this.file.vocabulary.get(letter);
    if (id !== undefined) return [id];
    if (!this.file.byteFallback)
      return refuse("bad-request", t`The tokenizer has no token for “${shown(letter)}”.`);
    return Array.from(encoder.encode(letter), (byte) => this.byteId(byte, letter));
  }
}
