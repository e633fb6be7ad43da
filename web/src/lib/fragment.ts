// What a visitor changed on a mechanism's page, in the address: "#reach=1&causal=true". A link is
// input from a stranger: only parameters of the mechanism are read, and heed checks their values.
import type { Mechanism, Parameter } from "heed";
import { readTyped } from "./controls.js";
import type { ExampleParams, ExampleValue } from "./example.js";

const MAX_LENGTH = 2048;

export function fragmentOf(changes: ExampleParams): string {
  const fields = Object.entries(changes).map(([name, value]): [string, string] => [
    name,
    Array.isArray(value) ? value.join(" ") : String(value),
  ]);
  const text = new URLSearchParams(fields).toString();
  return text === "" || text.length > MAX_LENGTH ? "" : `#${text}`;
}

function readValue(type: string, text: string): ExampleValue | undefined {
  if (type === "bool") return text === "true" || undefined;
  if (type === "word" || type === "choice") return text || undefined;
  return readTyped(type, text);
}

export function changesFromFragment(
  fragment: string,
  mechanism: Mechanism,
  parameters: ReadonlyMap<string, Parameter>,
): ExampleParams {
  const changes: ExampleParams = {};
  if (fragment.length > MAX_LENGTH) return changes;
  for (const [name, text] of new URLSearchParams(fragment.replace(/^#/, ""))) {
    const type = mechanism.params.includes(name) ? parameters.get(name)?.type : undefined;
    const value = type && readValue(type, text);
    if (value !== undefined && value !== "") changes[name] = value;
  }
  return changes;
}
