// JSON from strangers: RFC 8259 and nothing else, with limits. Unlike JSON.parse it refuses a name that
// occurs twice, numbers beyond float64 and deep nesting, and an object is a Map, in which "__proto__" is
// a name like any other.
import { type Message, t } from "./message.js";

export type Json = null | boolean | number | string | readonly Json[] | ReadonlyMap<string, Json>;

export interface JsonLimits {
  /** Objects and lists inside each other; 1 is an object of plain values. */
  readonly depth: number;
  /** Values and names in all. */
  readonly values: number;
  /** Every number is written as digits alone. Default false. */
  readonly whole?: boolean;
}

/** Says what was found; the caller knows in which file. */
export class JsonProblem extends Error {
  readonly found: Message;

  constructor(found: Message) {
    super("JSON");
    this.found = found;
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/y;
const WHOLE = /0|[1-9]\d*/y;
const SPACE = /[ \t\r\n]*/y;
/** What a string may hold without an escape. */
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const LONE_SURROGATE = /\p{Surrogate}/u;
const HEX = /[0-9a-fA-F]{4}/y;

const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};

const WORDS = [
  ["true", true],
  ["false", false],
  ["null", null],
] as const;

class Parser {
  private at = 0;
  private depth = 0;
  private values = 0;

  constructor(
    private readonly text: string,
    private readonly limits: JsonLimits,
  ) {}

  parse(): Json {
    const value = this.value();
    this.match(SPACE);
    if (this.at < this.text.length) this.refuse(t`more after the end`);
    return value;
  }

  private refuse(found: Message): never {
    throw new JsonProblem(t`${found}, at letter ${this.at + 1}`);
  }

  private match(pattern: RegExp): string {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0] ?? "";
    this.at += found.length;
    return found;
  }

  private accept(letter: string): boolean {
    this.match(SPACE);
    if (this.text[this.at] !== letter) return false;
    this.at++;
    return true;
  }

  private count(): void {
    if (++this.values > this.limits.values) this.refuse(t`more values than are read`);
  }

  private value(): Json {
    this.count();
    this.match(SPACE);
    const first = this.text[this.at];
    if (first === "{") return this.within(() => this.object());
    if (first === "[") return this.within(() => this.list());
    if (first === '"') return this.string();
    const word = WORDS.find(([spelling]) => this.text.startsWith(spelling, this.at));
    if (word === undefined) return this.number();
    this.at += word[0].length;
    return word[1];
  }

  private within<T>(read: () => T): T {
    if (++this.depth > this.limits.depth) this.refuse(t`more nesting than is read`);
    this.at++;
    const value = read();
    this.depth--;
    return value;
  }

  private object(): ReadonlyMap<string, Json> {
    const members = new Map<string, Json>();
    if (this.accept("}")) return members;
    do {
      this.match(SPACE);
      this.count();
      const name = this.string();
      if (members.has(name)) this.refuse(t`a name that occurs twice`);
      if (!this.accept(":")) this.refuse(t`no colon`);
      members.set(name, this.value());
    } while (this.accept(","));
    if (!this.accept("}")) this.refuse(t`an object that does not end`);
    return members;
  }

  private list(): readonly Json[] {
    const items: Json[] = [];
    if (this.accept("]")) return items;
    do items.push(this.value());
    while (this.accept(","));
    if (!this.accept("]")) this.refuse(t`a list that does not end`);
    return items;
  }

  private number(): number {
    const { whole = false } = this.limits;
    const digits = this.match(whole ? WHOLE : NUMBER);
    if (digits === "") this.refuse(whole ? t`no whole number` : t`no value`);
    const number = Number(digits);
    if (whole ? !Number.isSafeInteger(number) : !Number.isFinite(number))
      this.refuse(t`a number that is too large`);
    return number;
  }

  private string(): string {
    if (this.text[this.at] !== '"') this.refuse(t`no text`);
    this.at++;
    let string = this.match(PLAIN);
    while (this.text[this.at] === "\\") string += this.escape() + this.match(PLAIN);
    if (this.at >= this.text.length) this.refuse(t`a text that does not end`);
    if (this.text[this.at] !== '"') this.refuse(t`a letter that no text may hold`);
    this.at++;
    if (LONE_SURROGATE.test(string)) this.refuse(t`half a character`);
    return string;
  }

  private escape(): string {
    const letter = this.text[this.at + 1] ?? "";
    this.at += 2;
    if (letter === "u") {
      const digits = this.match(HEX);
      if (digits === "") this.refuse(t`an unknown escape`);
      return String.fromCharCode(Number.parseInt(digits, 16));
    }
    const known = Object.hasOwn(ESCAPES, letter) ? ESCAPES[letter] : undefined;
    return known ?? this.refuse(t`an unknown escape`);
  }
}

/** Throws JsonProblem. Time and memory are linear in the text. */
export const parseJson = (text: string, limits: JsonLimits): Json =>
  new Parser(text, limits).parse();

/** The text of UTF-8 bytes, or null where they are not. A byte order mark stays. */
export function decodeUtf8(bytes: ArrayBuffer | Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}
