// The state of a mechanism's page in the address: "#v=1&reach=1&head=2&order=own&pin=3,4&figure.scale=2". A link
// is input from a stranger: only parameters of the mechanism are read, and heed checks their values.
import type { Mechanism, Parameter } from "heed";
import { readTyped } from "./controls.js";
import type { ExampleParams, ExampleValue } from "./example.js";
import { FIRST_ORDER, type HeadOrder, orderInLink } from "./head_order.js";
import { cellInLink, indexIn, linkCell } from "./link_cell.js";
import type { Cell } from "./matrix.js";

export interface MechanismState {
  /** Parameters that differ from the example's. */
  changes: ExampleParams;
  head: number;
  /** Of the pictures of all heads. */
  order: HeadOrder;
  pin: Cell | null;
  /** What was set in the page's own figures, by name. */
  figure: Readonly<Record<string, string>>;
}

const VERSION = "1";
const MAX_LENGTH = 4096;
const FIGURE = "figure.";

/** With "#"; "" where nothing was changed, or too much for a link. */
export function fragmentOf({ changes, head, order, pin, figure }: MechanismState): string {
  const fields = Object.entries(changes).map(([name, value]): [string, string] => [
    name,
    Array.isArray(value) ? value.join(" ") : String(value),
  ]);
  if (head > 0) fields.push(["head", String(head + 1)]);
  if (order !== FIRST_ORDER) fields.push(["order", order]);
  if (pin) fields.push(["pin", linkCell(pin)]);
  // One state has one link, however it was reached.
  for (const name of Object.keys(figure).sort())
    fields.push([FIGURE + name, figure[name] as string]);
  const text = new URLSearchParams([["v", VERSION], ...fields]).toString();
  return fields.length === 0 || text.length > MAX_LENGTH ? "" : `#${text}`;
}

/** The fields of a link of this version; of others, and of endless ones, none. */
function fieldsOf(fragment: string): URLSearchParams {
  const fields = new URLSearchParams(
    fragment.length > MAX_LENGTH ? "" : fragment.replace(/^#/, ""),
  );
  return fields.get("v") === VERSION ? fields : new URLSearchParams();
}

function readValue(type: string, text: string): ExampleValue | undefined {
  if (type === "bool") return text === "true" || undefined;
  if (type === "word" || type === "choice") return text || undefined;
  return readTyped(type, text);
}

export function figureFromFragment(fragment: string): Record<string, string> {
  const figure: Record<string, string> = {};
  for (const [name, text] of fieldsOf(fragment)) {
    if (name.startsWith(FIGURE)) figure[name.slice(FIGURE.length)] = text;
  }
  return figure;
}

export function stateFromFragment(
  fragment: string,
  mechanism: Mechanism,
  parameters: ReadonlyMap<string, Parameter>,
): MechanismState {
  const fields = fieldsOf(fragment);
  const changes: ExampleParams = {};
  for (const [name, text] of fields) {
    const type = mechanism.params.includes(name) ? parameters.get(name)?.type : undefined;
    const value = type && readValue(type, text);
    if (value !== undefined && value !== "") changes[name] = value;
  }
  const head = indexIn(fields.get("head"));
  return {
    changes,
    head: Number.isNaN(head) ? 0 : head,
    order: orderInLink(fields.get("order")),
    pin: cellInLink(fields.get("pin")),
    figure: figureFromFragment(fragment),
  };
}
