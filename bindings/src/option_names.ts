import { fail, HeedError } from "./errors.js";

const POLARITY =
  "heed has two arguments instead of one mask: `keep` (booleans, true = may attend) and `bias` " +
  "(numbers, added to the score). Libraries disagree on what true means in a mask; " +
  "keepFromDropMask() converts one where true means hidden";

/** Names that other libraries use, and what to write here. */
const FOREIGN: Record<string, string> = {
  mask: POLARITY,
  attnMask: POLARITY,
  attentionMask: POLARITY,
  attn_mask: POLARITY,
  attention_mask: POLARITY,
  keyPaddingMask: `use keyLengths, or keep. ${POLARITY}`,
  key_padding_mask: `use keyLengths, or keep. ${POLARITY}`,
  isCausal: "write `causal`",
  is_causal: "write `causal`",
  softmaxScale: "write `scale`",
  softmax_scale: "write `scale`",
  temperature: "write `scale` (1 / temperature)",
  logitSoftcap: "write `softcap`",
  windowSize:
    "a sliding window is `window: { left, right }` (`windowSize` is that of the patterns " +
    '"swin_window" and "neighborhood")',
  windowLeft: "write `window: { left, right }`",
  windowRight: "write `window: { left, right }`",
  validLens: "write `keyLengths`",
  valid_lens: "write `keyLengths`",
  enableGqa: "drop it: grouped queries follow from the shapes",
  dropoutP: "write `dropout: { p, seed }`",
  vocabSize: "write `vocabulary`",
  vocab_size: "write `vocabulary`",
};

function distance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = (previous[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(swap, (previous[j] as number) + 1, (row[j - 1] as number) + 1));
    }
    previous = row;
  }
  return previous[b.length] as number;
}

/** Longer than any name: not worth a comparison with all of them. */
const LONGEST_NAME = 64;

/** The known name nearest to a misspelt one, or undefined when nothing is near. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  if (name.length > LONGEST_NAME) return undefined;
  const plain = (text: string): string => text.toLowerCase().replaceAll(/[_-]/g, "");
  let best: string | undefined;
  let bestDistance = 1 + Math.floor(name.length / 3);
  for (const candidate of known) {
    const steps = distance(plain(name), plain(candidate));
    if (steps < bestDistance) [best, bestDistance] = [candidate, steps];
  }
  return best;
}

/** What to write instead of a name of other libraries, where the call has it. */
function adviceFor(name: string, known: ReadonlySet<string>): string | undefined {
  // What stays in a cache is not the window of attention.
  if (/^(sliding)?window/i.test(name) && known.has("recentTokens")) return "write `recentTokens`";
  if (name === "sinks" && known.has("sinkTokens")) return "write `sinkTokens`";
  if (name.startsWith("window") && !known.has("window")) return undefined;
  return Object.hasOwn(FOREIGN, name) ? FOREIGN[name] : undefined;
}

/**
 * Throws for the first name of `given` that is not in `known`, with the advice that helps most. Names of
 * the argument `beside` are said to be `place`.
 */
export function checkNames(
  what: string,
  given: object,
  known: ReadonlySet<string>,
  beside?: ReadonlySet<string>,
  place?: string,
): void {
  for (const name of Object.keys(given)) {
    if (known.has(name)) continue;
    if (beside?.has(name)) throw new HeedError("option", `${what}: \`${name}\` is ${place}`);
    const near = nearest(name, known);
    const advice =
      adviceFor(name, known) ??
      (near ? `did you mean \`${near}\`?` : `known names are ${[...known].join(", ")}`);
    const shown = name.slice(0, LONGEST_NAME);
    throw new HeedError("option", `${what}: unknown name \`${shown}\`: ${advice}`);
  }
}

/** Whether all that an object says is in its own fields: not so in a Map, or with inherited fields. */
export function isPlain(value: object): boolean {
  const parent: object | null = Object.getPrototypeOf(value);
  if (parent === null) return true;
  // `Object.prototype`, of whatever frame.
  return Object.getPrototypeOf(parent) === null && Object.keys(parent).length === 0;
}

/** Throws unless `value` is a plain object (undefined counts as empty): other fields would be ignored. */
export function asRecord(what: string, value: unknown): Record<string, unknown> {
  if (value === undefined) return {};
  if (value === null || typeof value !== "object" || !isPlain(value)) {
    fail("option", what, value, "a plain object with named fields");
  }
  return value as Record<string, unknown>;
}
