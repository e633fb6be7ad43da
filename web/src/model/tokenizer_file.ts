// tokenizer.json of Hugging Face's tokenizers, read strictly: byte-pair encoding over bytes (GPT-2, Llama 3)
// or over letters with a fallback to bytes (Llama 2). Whatever this page would do otherwise than the file
// means is refused by its name.
import { Merges, MOST_IDS } from "./bpe.js";
import { type Message, shown, t } from "./message.js";
import { ModelError, refuse } from "./model_error.js";
import { knownSplit, type Split, splitDigits, splitGpt2, splitMetaspace } from "./split_text.js";
import { decodeUtf8, type Json, JsonProblem, parseJson } from "./strict_json.js";

const MAX_FILE = 64_000_000;
const MAX_VALUES = 8_000_000;
const MAX_TOKEN = 1024;
const MAX_ADDED = 10_000;

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
}

export interface TokenizerFile {
  /** Ids of tokens as the file writes them, added ones left out. */
  readonly vocabulary: ReadonlyMap<string, number>;
  readonly merges: Merges;
  readonly added: readonly AddedToken[];
  /** Whether letters of tokens stand for bytes; else spaces are "▁". */
  readonly bytes: boolean;
  /** Letters without a token become tokens of their bytes, "<0xE2>". */
  readonly byteFallback: boolean;
  /** A word that is a token stays one, whatever the merges say. */
  readonly ignoreMerges: boolean;
  readonly compose: boolean;
  /** One after the other, on every part that the one before left. */
  readonly splits: readonly Split[];
  /**
   * Where a space is put: before the whole text ("first") or every stretch between added tokens ("always")
   * unless it begins with one, or before whatever comes ("any").
   */
  readonly prefix: "never" | "first" | "always" | "any";
  /** Ids before and after every text. */
  readonly before: readonly number[];
  readonly after: readonly number[];
}

const bad = (why: Message): never =>
  refuse("bad-tokenizer", t`tokenizer.json cannot be used: ${why}.`);

/** An object of the file with a name for messages. */
class Part {
  constructor(
    private readonly name: string,
    private readonly values: ReadonlyMap<string, Json>,
  ) {}

  /** null counts as absent. */
  get(key: string): Json | undefined {
    return this.values.get(key) ?? undefined;
  }

  text(key: string): string {
    const value = this.get(key);
    if (typeof value === "string") return value;
    return bad(t`${this.name}.${key} is not a text`);
  }

  flag(key: string, absent: boolean): boolean {
    const value = this.get(key) ?? absent;
    return typeof value === "boolean" ? value : bad(t`${this.name}.${key} is not true or false`);
  }

  id(key: string): number {
    const value = this.get(key);
    if (Number.isInteger(value) && (value as number) >= 0 && (value as number) < MOST_IDS)
      return value as number;
    return bad(t`${this.name}.${key} is not a whole number below ${MOST_IDS}`);
  }

  list(key: string): readonly Json[] {
    const value = this.get(key) ?? [];
    return Array.isArray(value)
      ? (value as readonly Json[])
      : bad(t`${this.name}.${key} is not a list`);
  }

  part(key: string): Part | undefined {
    const value = this.get(key);
    if (value === undefined) return undefined;
    return partOf(`${this.name}.${key}`, value);
  }

  entries(): Iterable<readonly [string, Json]> {
    return this.values;
  }

  onlyKnown(keys: string): void {
    const known = new Set(keys.split(" "));
    for (const key of this.values.keys())
      if (!known.has(key)) bad(t`this page does not know ${this.name}.${shown(key)}`);
  }

  /** A value that has to be one of these where it is given. */
  expect(key: string, known: readonly Json[]): void {
    const value = this.get(key);
    if (value === undefined || known.includes(value)) return;
    const given = typeof value === "object" ? "…" : shown(String(value));
    bad(t`this page does not know ${this.name}.${key} = ${given}`);
  }

  /** What is of a kind that this page does not know. */
  unknown(): never {
    return bad(t`this page does not know ${this.name} of the type “${shown(this.text("type"))}”`);
  }
}

function partOf(name: string, value: Json): Part {
  return value instanceof Map ? new Part(name, value) : bad(t`${name} is not an object`);
}

const parts = (part: Part, name: string): readonly Part[] =>
  part.list(name).map((value, at) => partOf(`${name}[${at}]`, value));

/** The members of a sequence, or the part alone. */
const sequence = (part: Part | undefined, key: string): readonly Part[] =>
  part === undefined ? [] : part.text("type") === "Sequence" ? parts(part, key) : [part];

function readVocabulary(model: Part): ReadonlyMap<string, number> {
  const vocabulary = new Map<string, number>();
  const ids = new Set<number>();
  const part = model.part("vocab") ?? bad(t`model.vocab is missing`);
  for (const [token, id] of part.entries()) {
    if (token.length > MAX_TOKEN) bad(t`a token has ${token.length} letters`);
    if (!Number.isInteger(id) || (id as number) < 0 || (id as number) >= MOST_IDS)
      bad(t`token “${shown(token)}” has an id that is not a whole number below ${MOST_IDS}`);
    if (ids.has(id as number)) bad(t`two tokens have the id ${id as number}`);
    ids.add(id as number);
    vocabulary.set(token, id as number);
  }
  return vocabulary;
}

/** "a b" or ["a", "b"]. */
function readPair(value: Json, at: number): readonly [string, string] {
  const pair = typeof value === "string" ? value.split(" ") : value;
  const isPair = Array.isArray(pair) && pair.length === 2;
  if (isPair && pair.every((side) => typeof side === "string" && side !== ""))
    return pair as unknown as [string, string];
  return bad(t`merge ${at + 1} is not a pair of tokens`);
}

function readMerges(model: Part, vocabulary: ReadonlyMap<string, number>): Merges {
  const merges = new Merges();
  model.list("merges").forEach((value, at) => {
    const [left, right] = readPair(value, at);
    const idOf = (token: string) =>
      vocabulary.get(token) ?? bad(t`merge ${at + 1} names “${shown(token)}”, which is no token`);
    if (!merges.add(idOf(left), idOf(right), idOf(left + right)))
      bad(t`merge ${at + 1} occurs twice`);
  });
  return merges;
}

const MODEL_KEYS =
  "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback ignore_merges vocab merges";

function readModel(file: Part) {
  const model = file.part("model") ?? bad(t`tokenizer.model is missing`);
  // Old files leave the type out.
  model.expect("type", ["BPE"]);
  model.onlyKnown(MODEL_KEYS);
  model.expect("dropout", [0]);
  model.expect("continuing_subword_prefix", [""]);
  model.expect("end_of_word_suffix", [""]);
  const vocabulary = readVocabulary(model);
  return {
    vocabulary,
    merges: readMerges(model, vocabulary),
    byteFallback: model.flag("byte_fallback", false),
    ignoreMerges: model.flag("ignore_merges", false),
  };
}

function readAdded(file: Part, vocabulary: ReadonlyMap<string, number>): readonly AddedToken[] {
  const all = parts(file, "added_tokens");
  if (all.length > MAX_ADDED) bad(t`there are ${all.length} added tokens`);
  const tokens = new Map([...vocabulary].map(([token, id]) => [id, token]));
  return all.map((part) => {
    for (const key of ["single_word", "lstrip", "rstrip"]) part.expect(key, [false]);
    const [id, content] = [part.id("id"), part.text("content")];
    if (content === "" || content.length > MAX_TOKEN)
      bad(t`an added token has ${content.length} letters`);
    if ((vocabulary.get(content) ?? id) !== id || (tokens.get(id) ?? content) !== content)
      bad(t`added token “${shown(content)}” has another id than in the vocabulary`);
    tokens.set(id, content);
    return { id, content, special: part.flag("special", false) };
  });
}

/** NFC, and Llama 2's two steps that make spaces "▁". */
function readNormalizer(file: Part): { compose: boolean; metaspace: boolean; prepends: boolean } {
  const known = { compose: false, metaspace: false, prepends: false };
  for (const step of sequence(file.part("normalizer"), "normalizers")) {
    const type = step.text("type");
    if (type === "NFC") known.compose = true;
    else if (type === "Prepend") {
      step.expect("prepend", ["▁"]);
      known.prepends = true;
    } else if (type === "Replace") {
      step.part("pattern")?.expect("String", [" "]);
      step.part("pattern")?.onlyKnown("String");
      step.expect("content", ["▁"]);
      known.metaspace = true;
    } else step.unknown();
  }
  return known;
}

function readMetaspace(step: Part): { splits: readonly Split[]; prefix: TokenizerFile["prefix"] } {
  step.expect("replacement", ["▁"]);
  step.expect("prepend_scheme", ["never", "first", "always"]);
  const old = step.flag("add_prefix_space", true) ? "always" : "never";
  const prefix = (step.get("prepend_scheme") ?? old) as TokenizerFile["prefix"];
  return { splits: step.flag("split", true) ? [splitMetaspace] : [], prefix };
}

function readSplit(step: Part): Split {
  step.expect("behavior", ["Isolated"]);
  step.expect("invert", [false]);
  const expression = step.part("pattern")?.text("Regex") ?? bad(t`a split has no pattern`);
  return (
    knownSplit(expression) ?? bad(t`this page does not run the expression “${shown(expression)}”`)
  );
}

function readPreTokenizer(file: Part) {
  let [bytes, metaspace] = [false, false];
  let prefix: TokenizerFile["prefix"] = "never";
  const splits: Split[] = [];
  const steps = sequence(file.part("pre_tokenizer"), "pretokenizers");
  for (const step of steps) {
    const type = step.text("type");
    if (type === "ByteLevel") {
      bytes = true;
      if (step.flag("add_prefix_space", true)) prefix = "always";
      if (step.flag("use_regex", true)) splits.push(splitGpt2);
    } else if (type === "Metaspace") {
      metaspace = true;
      const own = readMetaspace(step);
      prefix = own.prefix;
      splits.push(...own.splits);
    } else if (type === "Digits") {
      step.expect("individual_digits", [true]);
      splits.push(splitDigits);
    } else if (type === "Split") splits.push(readSplit(step));
    else step.unknown();
  }
  // A space before each part that another step left: nobody has been seen to want that.
  if (prefix !== "never" && steps.length > 1)
    bad(t`this page does not know a space before each of several parts`);
  return { bytes, metaspace, prefix, splits };
}

/** The ids that a template puts before and after the text. */
function readTemplate(step: Part): { before: number[]; after: number[] } {
  const [before, after]: [number[], number[]] = [[], []];
  const tokens = step.part("special_tokens");
  let side = before;
  for (const item of parts(step, "single")) {
    const name = item.part("SpecialToken")?.text("id");
    if (name === undefined) {
      if (item.part("Sequence") === undefined) bad(t`the template has an unknown item`);
      side = after;
      continue;
    }
    const ids =
      tokens?.part(name)?.list("ids") ??
      bad(t`the template names “${shown(name)}”, which has no ids`);
    for (const id of ids)
      side.push(
        typeof id === "number" ? id : bad(t`the template names “${shown(name)}”, which has no ids`),
      );
  }
  return { before, after };
}

function readPostProcessor(file: Part): { before: number[]; after: number[] } {
  let ends: { before: number[]; after: number[] } = { before: [], after: [] };
  for (const step of sequence(file.part("post_processor"), "processors")) {
    const type = step.text("type");
    if (type === "TemplateProcessing") ends = readTemplate(step);
    else if (type !== "ByteLevel") step.unknown();
  }
  return ends;
}

const FILE_KEYS =
  "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model";

function interpret(file: Part): TokenizerFile {
  file.onlyKnown(FILE_KEYS);
  const model = readModel(file);
  const normalizer = readNormalizer(file);
  const { bytes, metaspace, prefix, splits } = readPreTokenizer(file);
  if (bytes === (metaspace || normalizer.metaspace))
    bad(t`tokens have to be over bytes (ByteLevel) or over letters with “▁” for spaces`);
  return {
    ...model,
    ...readPostProcessor(file),
    added: readAdded(file, model.vocabulary),
    bytes,
    compose: normalizer.compose,
    splits,
    prefix: normalizer.prepends ? "any" : prefix,
  };
}

/** Throws ModelError ("bad-tokenizer"). */
export async function readTokenizer(file: Blob): Promise<TokenizerFile> {
  if (file.size > MAX_FILE) bad(t`it has ${file.size} bytes; at most ${MAX_FILE} are read`);
  const text = decodeUtf8(await file.arrayBuffer());
  if (text === null) return bad(t`it is not UTF-8`);
  try {
    return interpret(partOf("tokenizer", parseJson(text, { depth: 12, values: MAX_VALUES })));
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error;
    throw new ModelError("bad-tokenizer", t`tokenizer.json cannot be read: ${error.found}.`);
  }
}
