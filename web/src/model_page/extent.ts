// How much of a text is read, and how much of that is shown, so that a page of any model stays within memory.
import type { ModelFacts, Piece } from "../model/model_types.js";
import { facts as shipped } from "./shipped.js";

/** Longer texts take minutes in a tab. */
const MOST_TOKENS = 1024;
/** Weights of heads that the page holds at once, in bytes; the worker refuses more than twice as much. */
const MOST_HEAD_BYTES = 256e6;
const WEIGHT_BYTES = 4;

/** Weights of the heads of that many layers over `len` tokens and their means, in bytes. */
const bytesOf = (layers: number, heads: number, len: number) =>
  WEIGHT_BYTES * layers * (heads + 1) * len * len;

/** The most tokens that are read at once: the heads of one layer always fit. */
export function mostRead({ contextLength, numHeads }: ModelFacts): number {
  const fitting = Math.floor(Math.sqrt(MOST_HEAD_BYTES / bytesOf(1, numHeads, 1)));
  return Math.max(1, Math.min(contextLength ?? shipped.model.context, MOST_TOKENS, fitting));
}

/** Layers whose heads are shown: all, or the wanted one where all are too many. */
export function shownLayers(model: ModelFacts, len: number, wanted: number): "all" | number[] {
  const { numLayers, numHeads } = model;
  return bytesOf(numLayers, numHeads, len) <= MOST_HEAD_BYTES ? "all" : [wanted];
}

/** The last `most` of all; the first `lead` (a beginning of the text) stay among them. */
export function lastOf<T>(all: readonly T[], most: number, lead: number): readonly T[] {
  if (all.length <= most) return all;
  const first = all.slice(0, Math.min(lead, most));
  return [...first, ...all.slice(all.length - most + first.length)];
}

/** A beginning of the text that the tokenizer put there stays when a text is cut. */
export const leadOf = (tokens: readonly Piece[]): number => (tokens[0]?.special ? 1 : 0);

/** Weights over the tokens of `lastOf(all, kept, lead)`, at the places that these have among all `read`. */
export function spread(weights: ArrayLike<number>, read: number, kept: number, lead: number) {
  const cut = read - kept;
  const spreadOut = new Float32Array(weights.length + cut);
  for (let at = 0; at < weights.length; at++) {
    spreadOut[at < lead ? at : at + cut] = weights[at] ?? 0;
  }
  return spreadOut;
}

export interface Prompt {
  /** Tokens that are kept of those that were read. */
  readonly kept: number;
  readonly maxTokens: number;
}

/** So that `most` tokens, or half a context of them, have room behind those that are kept. */
export function promptOf(model: ModelFacts, read: number, most: number): Prompt {
  const room = mostRead(model);
  const wanted = Math.min(most, Math.ceil(room / 2));
  // The last token that is written needs no room of its own.
  const kept = Math.min(read, room + 1 - wanted);
  return { kept, maxTokens: wanted };
}
