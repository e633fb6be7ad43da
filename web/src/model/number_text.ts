// Text without a tokenizer: tokens are written as their numbers, "464 2068 7586".
import { shown, t } from "./message.js";
import { refuse } from "./model_error.js";
import type { Encoded, Piece } from "./model_types.js";
import { MOST_LETTERS, type TextCoder } from "./tokenizer.js";

/** A number and what separates it from the next one. */
const NUMBER = /(\d+)[\s,]*/y;

export class NumberText implements TextCoder {
  constructor(private readonly vocabSize: number) {}

  /** Throws ModelError ("missing" for what is no number, "bad-request", "too-long"). */
  encode(text: string): Encoded {
    if (text.length > MOST_LETTERS)
      refuse(
        "too-long",
        t`The text has ${text.length} letters; at most ${MOST_LETTERS} are encoded.`,
      );
    const pieces: Piece[] = [];
    for (let start = text.length - text.trimStart().length; start < text.length; ) {
      NUMBER.lastIndex = start;
      const [whole, digits] = NUMBER.exec(text) ?? this.refuseText(text.slice(start));
      const id = Number(digits);
      if (id >= this.vocabSize)
        refuse("bad-request", t`The model has no token ${shown(digits as string)}.`);
      const end = start + (whole as string).length;
      pieces.push({ id, text: whole as string, part: false, special: false, start, end });
      start = end;
    }
    return { text, ids: pieces.map(({ id }) => id), pieces };
  }

  decode(ids: readonly number[]): string {
    return ids.join(" ");
  }

  pieces(ids: readonly number[]): readonly Piece[] {
    return this.encode(this.decode(ids)).pieces;
  }

  textBytes(id: number): Uint8Array {
    return new TextEncoder().encode(` ${id}`);
  }

  private refuseText(rest: string): never {
    return refuse(
      "missing",
      t`Without a tokenizer.json a text is the numbers of its tokens, “464 2068 7586”; “${shown(rest.slice(0, 20))}” is none.`,
    );
  }
}
