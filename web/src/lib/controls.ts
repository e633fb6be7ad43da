// Which parameters of a mechanism are controls of its picture: those that can change it, given what
// the others say. Rules name parameters, never mechanisms.
import type { Mechanism, Parameter } from "heed";
import type { Example, ExampleParams, ExampleValue } from "./example.js";
import { decimalIn, type Language } from "./messages.js";

/** Types that a control can be made of. */
const SHOWN: ReadonlySet<string> = new Set(
  "bool word choice number count numbers integers expression".split(" "),
);

/** Parameters that ask for more results, or for another order of the same products. */
const NEVER: ReadonlySet<string> = new Set(
  "returnWeights returnLse returnScores returnTiles tilesOfQuery form".split(" "),
);

/** What a rule may ask of the call as it stands. */
interface Call {
  /** Whether the example has this input. */
  has(input: string): boolean;
  /** Whether a parameter is one of these words; true where the mechanism has no such parameter. */
  is(name: string, ...words: string[]): boolean;
  /** Whether it is none of these; a mechanism without the parameter may be named after a word. */
  not(name: string, ...words: string[]): boolean;
  takes(name: string): boolean;
  number(name: string): number;
  picture: "Weights" | "Output";
  /** Whether heed reads a parameter here; it refuses the others. */
  reads(name: string): boolean;
}

const scored = (call: Call): boolean => call.not("normalize", "average");
const looksAhead = (call: Call): boolean =>
  !call.takes("pattern") || call.not("pattern", "strided", "fixed");

/** When a parameter that a call reads can change its picture; always, where nothing is said here. */
const WHEN: Readonly<Record<string, (call: Call) => boolean>> = {
  score: scored,
  scale: scored,
  scoreMod: scored,
  // Capping keeps the order of scores.
  softcap: (call) => call.not("normalize", "average", "hard"),
  causal: looksAhead,
  // A mechanism that is causal by itself has no such switch.
  windowRight: (call) => call.takes("causal") && looksAhead(call),
  windowLeft: (call) => !call.takes("pooling") || call.not("pooling", "first"),
  width: (call) =>
    call.is("normalize", "kernel_sum")
      ? call.not("kernel", "constant")
      : call.is("score", "squared_distance"),
  temperature: (call) => call.is("score", "cosine"),
  minTemperature: (call) => call.is("score", "cosine"),
  // Returned weights are those before dropout.
  dropoutP: (call) => call.picture === "Output",
  steps: (call) => call.not("normalize", "average", "hard"),
  tolerance: (call) => call.number("steps") > 1 && call.not("normalize", "average", "hard"),
  epsilon: (call) => call.is("subNorm", "rms") && call.is("setNorm", "layer"),
  ropeBase: (call) => call.is("rope", "half", "interleaved"),
};

/** The value that a parameter has: the visitor's, the example's, or its default. */
export function currentValue(
  parameter: Parameter | undefined,
  example: Example,
  changes: ExampleParams,
): ExampleValue {
  const name = parameter?.name ?? "";
  return changes[name] ?? example.params[name] ?? parameter?.default ?? "";
}

function callOf(mechanism: Mechanism, example: Example, changes: ExampleParams): Call {
  const { parameters } = example;
  const value = (name: string): ExampleValue =>
    changes[name] ?? example.params[name] ?? parameters.get(name)?.default ?? "";
  const call: Call = {
    has: (input) => example.inputs[input] !== undefined,
    is: (name, ...words) => !mechanism.params.includes(name) || words.includes(String(value(name))),
    not: (name, ...words) =>
      !words.includes(mechanism.params.includes(name) ? String(value(name)) : mechanism.id),
    takes: (name) => mechanism.params.includes(name),
    number: (name) => Number(value(name)),
    picture: mechanism.params.includes("returnWeights") ? "Weights" : "Output",
    reads: (name) => {
      const readBy = parameters.get(name)?.readBy ?? [];
      if (readBy.length === 0) return true;
      return readBy.some((reader) =>
        reader.words.length > 0
          ? call.is(reader.name, ...reader.words) && call.reads(reader.name)
          : call.has(reader.name),
      );
    },
  };
  return call;
}

/** Those of `given` that the call reads. heed refuses others, which may be set before another choice. */
export function readParams(
  mechanism: Mechanism,
  example: Example,
  changes: ExampleParams,
  given: ExampleParams = { ...example.params, ...changes },
): ExampleParams {
  const call = callOf(mechanism, example, changes);
  return Object.fromEntries(Object.entries(given).filter(([name]) => call.reads(name)));
}

/** The parameters that can change the picture of this call; expressions, which need room, last. */
export function controlsOf(
  mechanism: Mechanism,
  example: Example,
  changes: ExampleParams,
): Parameter[] {
  const call = callOf(mechanism, example, changes);
  const rows = mechanism.params
    .filter((name) => !NEVER.has(name) && call.reads(name) && (WHEN[name]?.(call) ?? true))
    .map((name) => example.parameters.get(name))
    .filter((row): row is Parameter => row !== undefined && SHOWN.has(row.type));
  const isExpression = ({ type }: Parameter) => type === "expression";
  return [...rows.filter((row) => !isExpression(row)), ...rows.filter(isExpression)];
}

/** What may separate the numbers of a list, where a comma is no decimal mark. */
const BETWEEN = /[\s,;]+/;
/** Where it is one: "1,5; 2", "1,5 2" and "1, 2"; "4,4,2" can only be a list. */
const BETWEEN_DECIMAL_COMMAS = /[\s;]+|,\s+/;
const DECIMAL_COMMA = /^([^,]*),([^,]*)$/;

const numberOf = (text: string): number => Number(text.replace("−", "-"));
const withPoint = (text: string): string => text.replace(DECIMAL_COMMA, "$1.$2");

function listParts(text: string, hasDecimalCommas: boolean): string[] {
  if (!hasDecimalCommas) return text.split(BETWEEN);
  const parts = text.split(BETWEEN_DECIMAL_COMMAS).map(withPoint);
  return parts.flatMap((part) => part.split(","));
}

const LISTS: ReadonlySet<string> = new Set(["numbers", "integers"]);

/**
 * What a visitor typed, as heed takes it: a number, a list of numbers, or text. What is none of these
 * is passed on as it is, so that heed itself says what it expects. Undefined when nothing is there. A
 * number may have a decimal comma in every language, those of a list where it is the language's mark.
 */
export function readTyped(
  type: string,
  text: string,
  language: Language = "en",
): ExampleValue | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  if (type === "expression") return trimmed;
  if (!LISTS.has(type)) {
    const value = numberOf(type === "number" ? withPoint(trimmed) : trimmed);
    return Number.isNaN(value) ? trimmed : value;
  }
  const hasDecimalCommas = language === "de" && type === "numbers";
  const parts = listParts(trimmed, hasDecimalCommas).filter(Boolean).map(numberOf);
  if (parts.length === 0 || parts.some(Number.isNaN)) return trimmed;
  return parts.length === 1 ? (parts[0] as number) : parts;
}

/** A number with as short an exponent as the sentences about it have, and a language's decimal mark. */
function typedPart(value: unknown, language: Language): string {
  const text = String(value);
  const number = Number(text);
  if (text === "" || !Number.isFinite(number)) return text;
  const isSmall = number !== 0 && Math.abs(number) < 1e-3;
  return decimalIn(language, isSmall ? number.toExponential() : text);
}

/** A value as a visitor would type it. */
export function typedText(value: ExampleValue, language: Language = "en"): string {
  if (!Array.isArray(value)) return typedPart(value, language);
  const parts = value.map((part) => typedPart(part, language));
  return parts.join(parts.some((part) => part.includes(",")) ? "; " : ", ");
}

/** The keys that a phone offers: those for decimals have no minus, and nothing between numbers. */
export function keyboardFor({ type, range }: Parameter): "decimal" | "numeric" | "text" {
  const isPositive = /^[[(][01],/.test(range);
  if (!isPositive || LISTS.has(type) || type === "expression") return "text";
  return type === "count" ? "numeric" : "decimal";
}
