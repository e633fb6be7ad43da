/**
 * What kind of mistake a `HeedError` reports. The words are stable.
 *
 * - `shape`: extents, ranks or element counts do not fit together
 * - `dtype`: an element type is not accepted here
 * - `range`: a number is outside what the argument allows
 * - `disposed`: a tensor, an instance or a buffer is no longer there
 * - `memory`: the result or the copy of an argument does not fit into WebAssembly memory
 * - `option`: an option or input name is unknown, missing, of the wrong kind or contradicts another
 * - `unsupported`: the combination is forbidden or not offered; the message says why
 * - `wasm-load`: the WebAssembly file could not be fetched, compiled or does not belong to this version
 * - `aborted`: the caller's signal stopped the work
 * - `crashed`: the WebAssembly instance trapped; `load()` gives a new one
 */
export type HeedErrorCode =
  | "shape"
  | "dtype"
  | "range"
  | "disposed"
  | "memory"
  | "option"
  | "unsupported"
  | "wasm-load"
  | "aborted"
  | "crashed";

/** Where an error says what it is: a page has the class once for each of the files for browsers. */
const KIND: symbol = Symbol.for("heed.HeedError");

/** `instanceof` HeedError holds for errors of every copy of the class; a subclass uses the ordinary check. */
function hasInstance(this: unknown, value: unknown): boolean {
  if (this !== HeedError) return Function.prototype[Symbol.hasInstance].call(this, value);
  return typeof value === "object" && value !== null && KIND in value;
}

/**
 * Thrown by everything in heed. The message names the argument, its value and what is allowed. `instanceof`
 * holds for errors of every entry point, also where a page has this class several times.
 */
export class HeedError extends Error {
  override readonly name: string = "HeedError";
  readonly code: HeedErrorCode;

  static {
    Object.defineProperty(HeedError, Symbol.hasInstance, { value: hasInstance });
    Object.defineProperty(HeedError.prototype, KIND, { value: true });
  }

  constructor(code: HeedErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** Renders a value for a message: short, and never throwing whatever the value is. */
export function describe(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 40));
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") return "a function";
  if (typeof value === "symbol") return "a symbol";
  if (Object.is(value, -0)) return "-0";
  if (value === null || typeof value !== "object") return String(value);
  if (ArrayBuffer.isView(value)) {
    const { length } = value as { length?: number };
    return `${value.constructor?.name ?? "a view"}(${length ?? value.byteLength})`;
  }
  if (Array.isArray(value)) {
    const shown = value.slice(0, 4).map((item) => (Array.isArray(item) ? "[...]" : describe(item)));
    return `[${shown.join(", ")}${value.length > 4 ? ", ..." : ""}]`;
  }
  return value instanceof Promise ? "a promise" : "an object";
}

/** Throws a `HeedError` of the house form: `argument: got value, expected expectation`. */
export function fail(
  code: HeedErrorCode,
  argument: string,
  value: unknown,
  expectation: string,
): never {
  throw new HeedError(code, `${argument}: got ${describe(value)}, expected ${expectation}`);
}
