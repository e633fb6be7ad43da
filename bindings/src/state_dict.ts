import { HeedError } from "./errors.js";
import { asRecord, checkNames } from "./option_names.js";
import { elements, readSource, type TensorArgument } from "./source.js";

/** Weights by name, as a checkpoint holds them. A bare typed array takes the shape that is expected. */
export type StateDict =
  | Readonly<Record<string, TensorArgument | Float32Array>>
  | ReadonlyMap<string, TensorArgument | Float32Array>;

export interface LoadStateOptions {
  /** What stands before the layer's own names: "encoder.layers.0.self_attn.". Others are ignored. */
  readonly prefix?: string | undefined;
}

const LOAD_OPTIONS: ReadonlySet<string> = new Set(["prefix"]);

const countOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** The entries below `prefix`, without it. */
function below(state: unknown, options: unknown, what: string): Record<string, unknown> {
  const given = asRecord("options", options);
  checkNames("options", given, LOAD_OPTIONS);
  const { prefix = "" } = given;
  if (typeof prefix !== "string") throw new HeedError("option", "prefix: expected a string");
  const all = state instanceof Map ? Object.fromEntries(state) : asRecord(what, state);
  if (prefix === "") return all;
  const own = Object.entries(all).filter(([name]) => name.startsWith(prefix));
  if (own.length === 0) {
    throw new HeedError("option", `prefix: no name of the ${what} begins with "${prefix}"`);
  }
  return Object.fromEntries(own.map(([name, value]) => [name.slice(prefix.length), value]));
}

/**
 * Reads float32 weights, every one of `expected` and no other. The elements are copies: reading a
 * later weight may grow the memory that an earlier one is a view of.
 */
export function readState(
  state: unknown,
  options: unknown,
  expected: ReadonlyMap<string, readonly number[]>,
  what: string = "state",
): Map<string, Float32Array> {
  const given = below(state, options, what);
  checkNames(what, given, new Set(expected.keys()));
  const weights = new Map<string, Float32Array>();
  for (const [name, shape] of expected) {
    const value = given[name];
    if (value === undefined) {
      const missing = [...expected.keys()].filter((other) => given[other] === undefined);
      throw new HeedError("option", `${what}: missing ${missing.join(", ")}`);
    }
    const source = readSource(name, value, { role: "numbers", vector: true });
    const data = elements(source) as Float32Array;
    const bare = ArrayBuffer.isView(value) && data.length === countOf(shape);
    if (!bare && source.shape.join() !== shape.join()) {
      throw new HeedError(
        "shape",
        `${name}: got shape [${source.shape.join(", ")}], expected [${shape.join(", ")}]`,
      );
    }
    weights.set(name, Float32Array.from(data));
  }
  return weights;
}
