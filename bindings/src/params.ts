import { fail, HeedError } from "./errors.js";
import type { ParamValue } from "./glue.js";
import { asRecord, checkNames } from "./option_names.js";
import type { Parameter } from "./registry.js";
import { readList } from "./source.js";

const WINDOW_NAMES: ReadonlySet<string> = new Set(["left", "right"]);
const DROPOUT_NAMES: ReadonlySet<string> = new Set(["p", "seed"]);

const toBound = (text: string): number =>
  text === "inf" ? Infinity : text === "-inf" ? -Infinity : Number(text);

/** Whether a number lies in an interval such as "(0, inf)" or "[0, 1)". */
export function inInterval(value: number, interval: string): boolean {
  const match = /^([[(])\s*([^,\s]+)\s*,\s*([^,\s]+)\s*([\])])$/.exec(interval);
  if (match === null) return true;
  const [, open, low = "", high = "", close] = match;
  const above = open === "[" ? value >= toBound(low) : value > toBound(low);
  const below = close === "]" ? value <= toBound(high) : value < toBound(high);
  return above && below;
}

function checkNumber(argument: string, value: unknown, range: string): number {
  if (typeof value !== "number") fail("option", argument, value, "a number");
  if (!Number.isFinite(value) || (range !== "" && !inInterval(value, range))) {
    fail("range", argument, value, `a finite number${range === "" ? "" : ` in ${range}`}`);
  }
  return value;
}

function checkWhole(argument: string, value: unknown, expectation: string): number {
  if (typeof value !== "number") fail("option", argument, value, expectation);
  if (!Number.isSafeInteger(value)) fail("range", argument, value, expectation);
  return value;
}

function checkWord(argument: string, value: unknown, range: string): string {
  const known = range.split("|");
  const listed = known.map((word) => JSON.stringify(word)).join(", ");
  if (typeof value !== "string" || !known.includes(value)) {
    fail("option", argument, value, `one of ${listed}`);
  }
  return value;
}

/** An expression for those who gave something else. */
const EXAMPLES: Readonly<Record<string, string>> = {
  keepMod: "kvIndex <= position",
  probMod: "prob < 0.01 ? 0 : prob",
  featureMod: "x > 0 ? x + 1 : exp(x)",
};

/** As long as an expression may be in C++: a longer text need not be copied into the module to be refused. */
const LONGEST_EXPRESSION = 4096;

function checkExpression(argument: string, value: unknown): string {
  if (typeof value === "string") {
    if (value.length <= LONGEST_EXPRESSION) return value;
    const most = `at most ${LONGEST_EXPRESSION}`;
    throw new HeedError("range", `${argument}: has ${value.length} characters, expected ${most}`);
  }
  const what = typeof value === "function" ? "a function" : value;
  const example = EXAMPLES[argument] ?? "score - 0.5 * abs(qIndex - kvIndex)";
  return fail(
    "option",
    argument,
    what,
    `an expression as text, such as "${example}": it runs on whole tiles, in every thread and worker`,
  );
}

function checkOffset(argument: string, value: unknown): ParamValue {
  const expectation = 'a whole number, one per batch entry, or "end"';
  if (value === "end") return value;
  if (!Array.isArray(value)) return checkWhole(argument, value, expectation);
  return wholeNumbers(argument, value);
}

/** Holes count as missing; a list's own `map` is not called. */
const wholeNumbers = (argument: string, list: readonly unknown[]): number[] =>
  Array.from(list, (item, index) => checkWhole(`${argument}[${index}]`, item, "a whole number"));

function checkNumbers(argument: string, value: unknown, range: string): ParamValue {
  if (typeof value === "number") return checkNumber(argument, value, range);
  return Array.from(readList(argument, value, "a number or a list"), (item, index) =>
    checkNumber(`${argument}[${index}]`, item, range),
  );
}

function checkIntegers(argument: string, value: unknown): ParamValue {
  if (!Array.isArray(value)) return checkWhole(argument, value, "a whole number or a list of them");
  return wholeNumbers(argument, value);
}

function checkCount(parameter: Parameter, argument: string, value: unknown): number {
  const least = parameter.range.startsWith("[1,") ? 1 : 0;
  const isBound = ["windowLeft", "windowRight"].includes(parameter.name);
  const expectation = `a whole number >= ${least}${isBound ? " (leave it out for no limit)" : ""}`;
  const count = checkWhole(argument, value, expectation);
  if (count < least) fail("range", argument, value, expectation);
  return count;
}

/** Seeds have 64 bits: those beyond the exact numbers travel as digits. */
export function checkSeed(argument: string, value: unknown): ParamValue {
  const expectation = "a whole number from 0 to 2^53 - 1, or a bigint below 2^64";
  if (typeof value === "bigint") {
    if (value < 0n || value >= 1n << 64n) fail("range", argument, value, expectation);
    return value.toString();
  }
  const seed = checkWhole(argument, value, expectation);
  if (seed < 0) fail("range", argument, value, expectation);
  return seed;
}

/** Throws when a parameter that must be given is not. */
export function checkNotNeeded(parameter: Parameter, argument: string): void {
  if (parameter.type !== "choice") return;
  const words = parameter.range.split("|").map((word) => JSON.stringify(word));
  throw new HeedError(
    "option",
    `${argument}: missing, expected ${words.join(" or ")}; there is no default`,
  );
}

/** Checks a value against its row of the parameter table. */
export function checkParam(parameter: Parameter, argument: string, value: unknown): ParamValue {
  const { type, range } = parameter;
  switch (type) {
    case "bool":
      if (typeof value !== "boolean") fail("option", argument, value, "true or false");
      return value;
    case "number":
      return checkNumber(argument, value, range);
    case "count":
      return checkCount(parameter, argument, value);
    case "seed":
      return checkSeed(argument, value);
    case "word":
    case "choice":
      return checkWord(argument, value, range);
    case "integers":
      return checkIntegers(argument, value);
    case "offset":
      return checkOffset(argument, value);
    case "expression":
      return checkExpression(argument, value);
    case "numbers":
      return checkNumbers(argument, value, range);
    default:
      return fail("unsupported", argument, value, `a parameter of a known type, not "${type}"`);
  }
}

/** Replaces `window: { left, right }` by the two parameters that the registry knows. */
export function expandWindow(params: Record<string, unknown>): Record<string, unknown> {
  if (params.window === undefined) return params;
  const { window, ...rest } = params;
  if (window === null || typeof window !== "object" || Array.isArray(window)) {
    fail("option", "window", window, "{ left, right }, or lastN(n) for the last n keys");
  }
  const sides = asRecord("window", window);
  checkNames("window", sides, WINDOW_NAMES);
  for (const name of ["windowLeft", "windowRight"]) {
    if (rest[name] === undefined) continue;
    throw new HeedError("option", `${name}: got it beside \`window\`, expected one of the two`);
  }
  return { ...rest, windowLeft: sides.left, windowRight: sides.right };
}

/** Replaces `dropout: { p, seed }` by the two parameters that the registry knows. */
export function expandDropout(params: Record<string, unknown>): Record<string, unknown> {
  if (params.dropout === undefined) return params;
  const { dropout, ...rest } = params;
  if (dropout === null || typeof dropout !== "object" || Array.isArray(dropout)) {
    fail("option", "dropout", dropout, "{ p, seed }");
  }
  const parts = asRecord("dropout", dropout);
  checkNames("dropout", parts, DROPOUT_NAMES);
  if (parts.p === undefined) throw new HeedError("option", "dropout.p: missing, a probability");
  for (const name of ["dropoutP", "dropoutSeed"]) {
    if (rest[name] === undefined) continue;
    throw new HeedError("option", `${name}: got it beside \`dropout\`, expected one of the two`);
  }
  return { ...rest, dropoutP: parts.p, dropoutSeed: parts.seed };
}

/** How a parameter is called where the caller wrote it: `window.left` for `windowLeft`. */
export function publicName(name: string): string {
  if (name === "windowLeft") return "window.left";
  if (name === "windowRight") return "window.right";
  if (name === "dropoutP") return "dropout.p";
  if (name === "dropoutSeed") return "dropout.seed";
  return name;
}
