// The state of the page in the URL fragment: `#v=1&text=...`, only what differs from the defaults; nothing for
// the page as it begins.
// A link is input from a stranger: every field is checked, and what does not fit is left out.

import { t } from "./messages.js";
import {
  ALIBI_RANGE,
  DEFAULTS,
  EXAMPLES,
  KERNELS,
  MAX_NUMBER,
  MAX_TEXT,
  type Snapshot,
  SOFTCAP_RANGE,
  START,
  TEMPERATURE_RANGE,
  VIEWS,
  WIDTH_RANGE,
} from "./snapshot.js";
import { MAX_TOKENS } from "./tokens.js";
import { HEADS } from "./vectors.js";

export const LINK_VERSION = "1";
export const MAX_LINK = 4096;

const DIGITS = 4;

function short(value: number): string {
  return String(Number(value.toPrecision(DIGITS)));
}

/** Painted cells as base-36 runs of sorted keys: "start.count-start.count". */
function encodeCells(cells: ReadonlySet<number>): string {
  const sorted = [...cells].sort((a, b) => a - b);
  const runs: string[] = [];
  for (let index = 0; index < sorted.length; ) {
    const start = sorted[index] as number;
    let count = 1;
    while (sorted[index + count] === start + count) count++;
    runs.push(`${start.toString(36)}${count > 1 ? `.${count.toString(36)}` : ""}`);
    index += count;
  }
  return runs.join("-");
}

function decodeCells(text: string): Set<number> {
  const cells = new Set<number>();
  const end = MAX_TOKENS * MAX_TOKENS;
  for (const run of text.split("-")) {
    const [start, count] = run.split(".").map((part) => Number.parseInt(part, 36));
    if (start === undefined || !(start >= 0)) continue;
    const last = Math.min(end, start + (count !== undefined && count > 0 ? count : 1));
    for (let key = start; key < last; key++) cells.add(key);
  }
  return cells;
}

function maskFields(state: Snapshot): [string, string | null][] {
  return [
    ["past", state.causal ? "1" : null],
    ["left", state.left === null ? null : String(state.left)],
    ["right", state.right === null ? null : String(state.right)],
    ["first", state.first === null ? null : String(state.first)],
    ["hide", state.hidden.size ? encodeCells(state.hidden) : null],
  ];
}

function exampleFields(state: Snapshot): [string, string | null][] {
  const numbers = state.dotNumbers.map(short).join(",");
  const lengths = state.validLengths.join(",");
  return [
    ["example", state.example],
    ["numbers", numbers === DEFAULTS.dotNumbers.map(short).join(",") ? null : numbers],
    ["lengths", lengths === DEFAULTS.validLengths.join(",") ? null : lengths],
    ["kernel", state.kernel === DEFAULTS.kernel ? null : state.kernel],
    ["width", state.width === DEFAULTS.width ? null : short(state.width)],
  ];
}

function fragmentOf(state: Snapshot): string {
  const fields: [string, string | null][] = [
    ["text", state.text === DEFAULTS.text ? null : state.text.slice(0, MAX_TEXT)],
    ["head", state.head === DEFAULTS.head ? null : String(state.head + 1)],
    ["view", state.view === DEFAULTS.view ? null : state.view],
    ["as", state.arcs ? "arcs" : null],
    ["T", state.temperature === DEFAULTS.temperature ? null : short(state.temperature)],
    ["cap", state.softcap === null ? null : short(state.softcap)],
    ["alibi", state.alibi === DEFAULTS.alibi ? null : short(state.alibi)],
    ...maskFields(state),
    ["pin", state.pin && `${state.pin.row + 1},${state.pin.column + 1}`],
    ...exampleFields(state),
  ];
  const set = fields.filter((field): field is [string, string] => field[1] !== null);
  return new URLSearchParams([["v", LINK_VERSION], ...set]).toString();
}

/** The fragment without "#", or null when it would be longer than MAX_LINK. */
export function encodeLink(state: Snapshot): string | null {
  const fragment = fragmentOf(state);
  if (fragment === fragmentOf(START)) return "";
  return fragment.length <= MAX_LINK ? fragment : null;
}

function numberIn(text: string | null, [low, high]: readonly [number, number]): number | null {
  if (text === null || text.trim() === "") return null;
  const value = Number(text);
  return Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : null;
}

function wholeIn(text: string | null, range: readonly [number, number]): number | null {
  const value = numberIn(text, range);
  return value === null ? null : Math.round(value);
}

function oneOf<T extends string>(text: string | null, words: readonly T[]): T | null {
  return words.find((word) => word === text) ?? null;
}

function list(text: string | null, length: number, range: readonly [number, number]) {
  const values = (text ?? "").split(",").map((part) => numberIn(part, range));
  const good = values.filter((value) => value !== null);
  return text !== null && good.length === length && values.length === length ? good : null;
}

function decodePin(text: string | null): Snapshot["pin"] {
  const pair = list(text, 2, [1, MAX_TOKENS]);
  if (!pair) return null;
  return { row: Math.round(pair[0] as number) - 1, column: Math.round(pair[1] as number) - 1 };
}

/** The state of a fragment (with or without "#"); `problem` says what could not be read. */
export function decodeLink(fragment: string): { state: Snapshot; problem: string | null } {
  const text = fragment.replace(/^#/, "");
  const state: Snapshot = { ...START };
  if (text === "") return { state, problem: null };
  if (text.length > MAX_LINK)
    return { state, problem: t`This link is too long to be one of ours.` };
  const fields = new URLSearchParams(text);
  const version = fields.get("v");
  if (version === null) return { state, problem: null };
  if (version !== LINK_VERSION) {
    return {
      state,
      problem: t`This link has format ${version.slice(0, 8)}; this page reads format 1.`,
    };
  }
  const words = [0, MAX_TOKENS] as const;
  const sentence = fields.get("text");
  const head = wholeIn(fields.get("head"), [1, HEADS.length]);
  const lengths = list(fields.get("lengths"), 2, [0, 4]);
  return {
    problem: null,
    state: {
      text: sentence === null ? DEFAULTS.text : sentence.slice(0, MAX_TEXT),
      head: head === null ? DEFAULTS.head : head - 1,
      view: oneOf(fields.get("view"), VIEWS) ?? DEFAULTS.view,
      arcs: fields.get("as") === "arcs",
      temperature: numberIn(fields.get("T"), TEMPERATURE_RANGE) ?? DEFAULTS.temperature,
      softcap: numberIn(fields.get("cap"), SOFTCAP_RANGE),
      alibi: numberIn(fields.get("alibi"), ALIBI_RANGE) ?? DEFAULTS.alibi,
      causal: fields.get("past") === "1",
      left: wholeIn(fields.get("left"), words),
      right: wholeIn(fields.get("right"), words),
      first: wholeIn(fields.get("first"), words),
      hidden: decodeCells(fields.get("hide") ?? ""),
      pin: decodePin(fields.get("pin")),
      example: oneOf(fields.get("example"), EXAMPLES),
      dotNumbers:
        list(fields.get("numbers"), DEFAULTS.dotNumbers.length, [-MAX_NUMBER, MAX_NUMBER]) ??
        DEFAULTS.dotNumbers,
      validLengths: lengths
        ? [Math.round(lengths[0] as number), Math.round(lengths[1] as number)]
        : DEFAULTS.validLengths,
      kernel: oneOf(fields.get("kernel"), KERNELS) ?? DEFAULTS.kernel,
      width: numberIn(fields.get("width"), WIDTH_RANGE) ?? DEFAULTS.width,
    },
  };
}
