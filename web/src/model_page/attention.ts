// What the page shows of the weights of all layers: pictures of heads, and who looks at whom.
import { makeMatrix } from "../lib/make_matrix.js";
import type { Matrix } from "../lib/matrix.js";
import { t } from "../lib/messages.js";
import type { Head, LayerHeads, Piece, RunResult } from "../model/model_types.js";

/** Pictures show so many tokens; more cells would be too small to see. */
export const MOST_SHOWN = 64;

export const headName = ({ layer, head }: Head): string => t`Layer ${layer + 1}, head ${head + 1}`;

export const sameHead = (a: Head, b: Head): boolean => a.layer === b.layer && a.head === b.head;

export const allHeads = (numLayers: number, numHeads: number): readonly Head[] =>
  Array.from({ length: numLayers * numHeads }, (_, n) => ({
    layer: Math.floor(n / numHeads),
    head: n % numHeads,
  }));

/**
 * A token as it is written where it must be seen: spaces and line ends as marks. `at` is its place in
 * the text, where it has one. What has no text of its own, such as a part of a character, is "…".
 */
export function shownToken(
  { text, special }: Pick<Piece, "text" | "special">,
  at?: number,
): string {
  if (special && at === 0) return t`(start)`;
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ /, "·") || "…";
}

/** The weights that `query` gives, one for each of the `len` tokens. */
export function rowOf(
  { weights }: LayerHeads,
  head: number,
  query: number,
  len: number,
): Float32Array {
  const start = (head * len + query) * len;
  return weights.subarray(start, start + len);
}

/** The picture of a head over the first tokens. */
export function pictureOf(result: RunResult, head: Head, labels: readonly string[]): Matrix {
  const { len, heads } = result;
  const side = Math.min(len, MOST_SHOWN);
  const layer = heads[head.layer] as LayerHeads;
  const values = new Float32Array(side * side);
  for (let row = 0; row < side; row++) {
    values.set(rowOf(layer, head.head, row, len).subarray(0, side), row * side);
  }
  const shown = labels.slice(0, side);
  return makeMatrix({
    title: headName(head),
    kind: "weight",
    values,
    rowLabels: shown,
    columnLabels: shown,
    hidden: (row, column) => column > row,
  });
}

/** The mean of rows of `width` that stand one after the other. */
export function meanOfRows(rows: Float32Array, width: number): Float32Array {
  const mean = new Float32Array(width);
  const count = rows.length / width;
  rows.forEach((weight, at) => {
    mean[at % width] = (mean[at % width] ?? 0) + weight / count;
  });
  return mean;
}

/** What `query` gives to each token, the mean of all heads of these layers. */
export function meanOfLayers(layers: readonly LayerHeads[], query: number, len: number) {
  const row = new Float32Array(len);
  for (const { mean } of layers) {
    for (let key = 0; key <= query; key++) {
      row[key] = (row[key] ?? 0) + (mean[query * len + key] ?? 0) / layers.length;
    }
  }
  return row;
}

/**
 * How much of each token reaches `query` through all layers, if every layer passes on half of what it
 * is given and half of what its heads, on average, take: row `query` of the product of (I + A) / 2.
 * Sums to 1. Time grows with layers x query^2. Abnar & Zuidema 2020, arXiv:2005.00928, section 3.
 */
export function rollout(
  { len, heads }: Pick<RunResult, "len" | "heads">,
  query: number,
): Float32Array {
  let row = new Float32Array(len);
  row[query] = 1;
  for (const { mean } of [...heads].reverse()) {
    const next = row.map((share) => share / 2);
    for (let token = 0; token <= query; token++) {
      const half = (row[token] ?? 0) / 2;
      for (let key = 0; key <= token && half > 0; key++) {
        next[key] = (next[key] ?? 0) + half * (mean[token * len + key] ?? 0);
      }
    }
    row = next;
  }
  return row;
}

export const mean = (values: ArrayLike<number>): number => {
  let sum = 0;
  for (let at = 0; at < values.length; at++) sum += values[at] ?? 0;
  return sum / values.length;
};
