import { describe, HeedError } from "./errors.js";
import type { InputRow, KernelGlue, MechanismRow, ParameterRow } from "./glue.js";
import type { Heap } from "./heap.js";
import type { Build } from "./heed.js";
import { nearest } from "./option_names.js";
import { Table } from "./registry_table.js";

/** What makes a call read a parameter or an input. */
export interface ReadBy {
  /** Of a parameter or an input: "pattern", "blockKeep". */
  readonly name: string;
  /** The words that the parameter may have; none where it is enough that it is given. */
  readonly words: readonly string[];
}

/** A tensor that a mechanism takes: enough to check one, or to make an example. */
export interface MechanismInput {
  /** As `heed.run()` takes it: "q", "keyLengths". */
  readonly name: string;
  readonly optional: boolean;
  /** "float", "keep" (booleans, true = may attend) or "int". */
  readonly kind: string;
  /** Alternatives, each a list of extents by symbol; '?' behind one means that it may be 1. */
  readonly shapes: readonly (readonly string[])[];
  /** How to draw an example: "normal", "weight", "positive", "slopes", "keep", "lengths", ... */
  readonly draw: string;
  /** One sentence. */
  readonly summary: string;
  /**
   * A call reads it only beside one of these, and refuses it otherwise; empty where it is always read. A
   * mechanism without such a parameter, which is one of its words itself, reads it too.
   */
  readonly readBy: readonly ReadBy[];
}

/** A mechanism of heed: a row of the one list (cpp/include/heed/mechanisms.inc). */
export interface Mechanism {
  /** What `heed.run()` and `heed.reference()` call it by. */
  readonly id: string;
  /** "exact", "selective", "low_rank", "recurrent", "layer" or "position". */
  readonly family: string;
  readonly title: string;
  readonly year: number;
  /** Authors, title, arXiv id. */
  readonly source: string;
  /** One sentence. */
  readonly summary: string;
  /** LaTeX. */
  readonly formula: string;
  readonly inputs: readonly MechanismInput[];
  /** Names of rows of `heed.parameters`. */
  readonly params: readonly string[];
  /**
   * Growth of time with length: "quadratic", "linear", "n log n", "pattern" (what a rule leaves of the
   * pairs) or "edges" (those of a graph).
   */
  readonly cost: string;
  /**
   * What a call may have: "gqa", "causal", "window", "lengths", "keep", "bias", "softcap", "sinks",
   * "lse", "weights", "scores", "state", "gradient", ...; "approximates" stands in for exact attention.
   */
  readonly capabilities: readonly string[];
}

/** A parameter: everything a page needs to make a control of it. */
export interface Parameter {
  /** As `heed.run()` takes it: "queryOffset". */
  readonly name: string;
  /** "bool", "number", "count", "seed", "word", "choice" (a word that must be given), "offset", "integers", "numbers" or "expression". */
  readonly type: string;
  /** As text; empty when absent means off or derived. */
  readonly default: string;
  /** Words "a|b|c" or an interval such as "(0, inf)"; may be empty. */
  readonly range: string;
  /** The letter in the formula, LaTeX; may be empty. */
  readonly symbol: string;
  readonly summary: string;
  /** As of an input. */
  readonly readBy: readonly ReadBy[];
}

/** `translate`, remembered: every call asks for the same few names. */
function remembered(translate: (name: string) => string): (name: string) => string {
  const known = new Map<string, string>();
  return (name) => {
    let translated = known.get(name);
    if (translated === undefined) {
      translated = translate(name);
      known.set(name, translated);
    }
    return translated;
  };
}

/** A name as JavaScript spells it. */
export const camelCase: (name: string) => string = remembered((name) =>
  name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase()),
);

/** A name as C++ spells it. */
export const snakeCase: (name: string) => string = remembered((name) =>
  name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
);

const words = (text: string): string[] => text.split(" ").filter((word) => word !== "");

/** "pattern=fixed|strided block_keep", as C++ writes it. */
function toReaders(text: string): readonly ReadBy[] {
  const readers = words(text).map((word) => {
    const [name = "", options] = word.split("=");
    return Object.freeze({
      name: camelCase(name),
      words: Object.freeze(options?.split("|") ?? []),
    });
  });
  return Object.freeze(readers);
}

type InputTable = Table<InputRow, Omit<MechanismInput, "optional">>;

function toInput(row: InputRow): Omit<MechanismInput, "optional"> {
  const shapes = row.shape.split("|").map((shape) => Object.freeze(words(shape)));
  return {
    ...row,
    name: camelCase(row.name),
    shapes: Object.freeze(shapes),
    readBy: toReaders(row.readBy),
  };
}

function toMechanism(row: MechanismRow, table: InputTable): Mechanism {
  const inputs = words(row.inputs).map((word) => {
    const input = table.get(word.replace("?", ""));
    if (input === undefined) throw new Error(`${row.id} lists an unknown input ${word}`);
    return Object.freeze({ ...input, optional: word.endsWith("?") });
  });
  return Object.freeze({
    ...row,
    year: Number(row.year),
    inputs: Object.freeze(inputs),
    params: Object.freeze(words(row.params).map(camelCase)),
    capabilities: Object.freeze(words(row.capabilities)),
  });
}

const toParameter = (row: ParameterRow): Parameter =>
  Object.freeze({ ...row, name: camelCase(row.name), readBy: toReaders(row.readBy) });

/** The names that a call of a mechanism may use, made when it is first called. */
export interface CallNames {
  readonly mechanism: Mechanism;
  readonly inputs: ReadonlySet<string>;
  /** The mechanism's parameters, `window` and `dropout` for their two parts, and `layout`. */
  readonly params: ReadonlySet<string>;
  /** All of them as C++ spells them. */
  readonly words: ReadonlySet<string>;
  /** Rows of the mechanism's parameters, in its order. */
  readonly parameters: readonly Parameter[];
  /** Of the parameters and inputs that are not always read. */
  readonly readers: ReadonlyMap<string, readonly ReadBy[]>;
}

function toCallNames(mechanism: Mechanism, parameters: readonly Parameter[]): CallNames {
  const params = new Set([...mechanism.params, "layout"]);
  if (params.has("windowLeft")) params.add("window");
  if (params.has("dropoutP")) params.add("dropout");
  const inputs = new Set(mechanism.inputs.map(({ name }) => name));
  const words = new Set([...inputs, ...mechanism.params].map(snakeCase));
  // How C++ speaks of T5's buckets, whoever has them.
  if (inputs.has("bucketBias")) words.add("num_buckets").add("max_distance");
  const readers = new Map(
    [...parameters, ...mechanism.inputs]
      .filter(({ readBy }) => readBy.length > 0)
      .map(({ name, readBy }) => [name, readBy]),
  );
  return { mechanism, inputs, params, words, parameters, readers };
}

/** The registry of a loaded module, in JavaScript's words. */
export class Registry {
  readonly #mechanisms: Table<MechanismRow, Mechanism>;
  readonly #parameters: Table<ParameterRow, Parameter>;
  readonly #callNames = new Map<string, CallNames>();
  #allMechanisms: readonly Mechanism[] | undefined;
  #allParameters: readonly Parameter[] | undefined;

  readonly #build: Build;

  constructor(heap: Heap<KernelGlue>, build: Build) {
    this.#build = build;
    const text = (table: "inputs" | "mechanisms" | "parameters"): string =>
      heap.takeText(
        `heed.${table}`,
        heap.call((glue) => glue[table]()),
      );
    const inputs: InputTable = new Table(text("inputs"), toInput);
    this.#mechanisms = new Table(text("mechanisms"), (row) => toMechanism(row, inputs));
    this.#parameters = new Table(text("parameters"), toParameter);
  }

  get mechanisms(): readonly Mechanism[] {
    this.#allMechanisms ??= this.#mechanisms.all();
    return this.#allMechanisms;
  }

  get parameters(): readonly Parameter[] {
    this.#allParameters ??= this.#parameters.all();
    return this.#allParameters;
  }

  callNames(id: unknown): CallNames {
    const known = this.#callNames.get(id as string);
    if (known !== undefined) return known;
    const mechanism = this.#find(id);
    const names = toCallNames(
      mechanism,
      mechanism.params.map((name) => this.parameter(name)),
    );
    this.#callNames.set(names.mechanism.id, names);
    return names;
  }

  #find(id: unknown): Mechanism {
    const found = typeof id === "string" ? this.#mechanisms.get(id) : undefined;
    if (found !== undefined) return found;
    const ids = this.#mechanisms.names;
    const near = typeof id === "string" ? nearest(id, ids) : undefined;
    const advice = near ? `did you mean \`${near}\`?` : `known ids are ${ids.join(", ")}`;
    const missing = this.#build === "core" ? '; "heed/core" is a part, "heed" has every one' : "";
    throw new HeedError("option", `id: unknown mechanism ${describe(id)}: ${advice}${missing}`);
  }

  /** By the name that JavaScript has for it. */
  parameter(name: string): Parameter {
    const found = this.#parameters.get(snakeCase(name));
    if (found === undefined) throw new HeedError("option", `unknown parameter \`${name}\``);
    return found;
  }
}
