import { HeedError } from "./errors.js";
import type { MechanismInput } from "./registry.js";
import type { Source } from "./source.js";

/** Extents that a call has settled so far, and which argument said so. */
export type Extents = Map<string, { extent: number; from: string }>;

const show = (shape: readonly number[]): string => `[${shape.join(", ")}]`;

/** "[batch, num_heads?, kv_len]" with the extents that are known: "[batch = 2, ...]". */
function describe(pattern: readonly string[], extents: Extents): string {
  const parts = pattern.map((symbol) => {
    const known = extents.get(symbol.replace("?", ""));
    const text = known === undefined ? symbol : `${symbol.replace("?", "")} = ${known.extent}`;
    return symbol.endsWith("?") ? `${text} or 1` : text;
  });
  return `[${parts.join(", ")}]`;
}

function fits(pattern: readonly string[], shape: readonly number[], extents: Extents): boolean {
  if (pattern.length !== shape.length) return false;
  const here = new Map<string, number>();
  return pattern.every((symbol, axis) => {
    const extent = shape[axis] as number;
    if (symbol.endsWith("?") && extent === 1) return true;
    if (/^\d+$/.test(symbol)) return extent === Number(symbol);
    const name = symbol.replace("?", "");
    const known = extents.get(name)?.extent ?? here.get(name) ?? extent;
    here.set(name, extent);
    return known === extent;
  });
}

/**
 * Checks the shape of an input against the alternatives of its row, and settles the extents that it
 * is the first to name. Symbols with '?' that are 1 settle nothing.
 */
export function bindExtents(input: MechanismInput, source: Source, extents: Extents): void {
  const pattern = input.shapes.find((shape) => fits(shape, source.shape, extents));
  if (pattern === undefined) {
    const expected = input.shapes.map((shape) => describe(shape, extents)).join(" or ");
    const named = input.shapes.flat().map((symbol) => extents.get(symbol.replace("?", ""))?.from);
    const others = [...new Set(named.filter((name) => name !== undefined))].join(", ");
    throw new HeedError(
      "shape",
      `${source.name}: got shape ${show(source.shape)}, expected ${expected}${others === "" ? "" : ` to go with ${others}`}`,
    );
  }
  pattern.forEach((symbol, axis) => {
    const extent = source.shape[axis] as number;
    const name = symbol.replace("?", "");
    if (extents.has(name) || (symbol.endsWith("?") && extent === 1) || /^\d+$/.test(symbol)) return;
    extents.set(name, { extent, from: source.name });
  });
}
