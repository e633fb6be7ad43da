// The state of the model's page in its address:
// "#v=1&text=In+the&head=2,3&order=own&look=head&token=4&pin=3,4&arcs=1&T=0.5&k=20&seed=7&out=1,2.4,4", only
// what differs from the page as it begins; layers, heads and tokens from 1. A link is input from a stranger:
// what does not fit is left out, and heads or cells that a model does not have are not shown.
import { FIRST_ORDER, type HeadOrder, orderInLink } from "../lib/head_order.js";
import { cellInLink, indexIn, linkCell } from "../lib/link_cell.js";
import type { Cell } from "../lib/matrix.js";
import type { Head } from "../model/model_types.js";
import { EXAMPLES, LOOKS, type Looks, MOST_TEXT, RANGES, type Sampling } from "./choices.js";

export interface PageState {
  readonly text: string;
  readonly sampling: Sampling;
  readonly looks: Looks;
  readonly head: Head;
  /** Of the pictures of all heads. */
  readonly order: HeadOrder;
  /** Absent: the last token. */
  readonly token: number | null;
  readonly pin: Cell | null;
  /** The large head as arcs between its tokens. */
  readonly arcs: boolean;
  /** Heads that are taken out. */
  readonly out: readonly Head[];
}

export const DEFAULTS: PageState = {
  text: EXAMPLES[0].value,
  sampling: { temperature: 0.8, topK: 40, seed: 1 },
  looks: "mean",
  head: { layer: 0, head: 0 },
  order: FIRST_ORDER,
  token: null,
  pin: null,
  arcs: false,
  out: [],
};

const VERSION = "1";
/** With "#". A letter takes nine characters where UTF-8 takes three bytes. */
const MAX_LENGTH = 9 * MOST_TEXT + 2048;
const MOST_OUT = 256;

const linkHead = ({ layer, head }: Head): string => linkCell({ row: layer, column: head });

function headInLink(text: string | null): Head | null {
  const cell = cellInLink(text);
  return cell && { layer: cell.row, head: cell.column };
}

const differs = <T extends string | number>(value: T, resting: T): string | null =>
  value === resting ? null : String(value);

/** With "#"; "" for the page as it begins, or where there is too much for a link. */
export function fragmentOf(state: PageState): string {
  const { text, sampling, looks, head, order, token, pin, arcs, out } = state;
  const resting = DEFAULTS.sampling;
  const fields: [string, string | null][] = [
    ["text", differs(text, DEFAULTS.text)],
    ["head", differs(linkHead(head), linkHead(DEFAULTS.head))],
    ["order", differs(order, DEFAULTS.order)],
    ["look", differs(looks, DEFAULTS.looks)],
    ["token", token === null ? null : String(token + 1)],
    ["pin", pin && linkCell(pin)],
    ["arcs", arcs ? "1" : null],
    ["T", differs(sampling.temperature, resting.temperature)],
    ["k", differs(sampling.topK, resting.topK)],
    ["seed", differs(sampling.seed, resting.seed)],
    ["out", out.length > 0 ? out.map(linkHead).join(".") : null],
  ];
  const set = fields.filter((field): field is [string, string] => field[1] !== null);
  const link = `#${new URLSearchParams([["v", VERSION], ...set])}`;
  return set.length === 0 || link.length > MAX_LENGTH ? "" : link;
}

function numberIn(text: string | null, name: keyof Sampling): number {
  const { least, most, whole } = RANGES[name];
  const value = Number(text);
  const isOne = text !== null && text.trim() !== "" && value >= least && value <= most;
  return isOne && (!whole || Number.isInteger(value)) ? value : DEFAULTS.sampling[name];
}

function headsInLink(text: string | null): readonly Head[] {
  const heads = (text ?? "").split(".", MOST_OUT).map(headInLink);
  return heads.filter((head) => head !== null);
}

/** With or without "#". */
export function stateOf(fragment: string): PageState {
  const fields = new URLSearchParams(
    fragment.length > MAX_LENGTH ? "" : fragment.replace(/^#/, ""),
  );
  if (fields.get("v") !== VERSION) return DEFAULTS;
  const token = indexIn(fields.get("token"));
  return {
    text: (fields.get("text") ?? DEFAULTS.text).slice(0, MOST_TEXT),
    sampling: {
      temperature: numberIn(fields.get("T"), "temperature"),
      topK: numberIn(fields.get("k"), "topK"),
      seed: numberIn(fields.get("seed"), "seed"),
    },
    looks: LOOKS.find(({ value }) => value === fields.get("look"))?.value ?? DEFAULTS.looks,
    head: headInLink(fields.get("head")) ?? DEFAULTS.head,
    order: orderInLink(fields.get("order")),
    token: Number.isNaN(token) ? null : token,
    pin: cellInLink(fields.get("pin")),
    arcs: fields.get("arcs") === "1",
    out: headsInLink(fields.get("out")),
  };
}
