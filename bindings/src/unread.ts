import { HeedError } from "./errors.js";
import type { CallNames, ReadBy } from "./registry.js";

/** A checked call, as far as these rules look at it. */
interface Call {
  readonly names: Omit<CallNames, "mechanism">;
  /** Parameters that are given. */
  readonly params: ReadonlyMap<string, unknown>;
  /** Names of the inputs that are given. */
  readonly inputs: ReadonlySet<string>;
  /** How the caller spells a parameter. */
  readonly nameOf: (name: string) => string;
}

const listed = (items: readonly string[]): string =>
  items.length < 2 ? items.join() : `${items.slice(0, -1).join(", ")} or ${items.at(-1)}`;

/** Whether a call has this reader. A mechanism that settles the parameter itself reads all it takes. */
function has({ name, words }: ReadBy, { names, params, inputs }: Call): boolean {
  if (words.length === 0) return params.has(name) || inputs.has(name);
  return !names.params.has(name) || words.includes(params.get(name) as string);
}

/** Refuses what the call would ignore: an option of another pattern, normaliser, scaling or table. */
export function checkRead(call: Call): void {
  const { names, params, inputs, nameOf } = call;
  for (const name of [...params.keys(), ...inputs]) {
    const readers = names.readers.get(name);
    if (readers === undefined || readers.some((reader) => has(reader, call))) continue;
    const options = readers
      .filter((reader) => names.params.has(reader.name) || names.inputs.has(reader.name))
      .map((reader) => {
        const words = reader.words.map((word) => JSON.stringify(word));
        return words.length > 0 ? `${nameOf(reader.name)} ${listed(words)}` : reader.name;
      });
    throw new HeedError("option", `${nameOf(name)} is read only by ${listed(options)}`);
  }
}
