// The eight matrices of one head, as the views draw them.

import type { Attended } from "./engine.js";
import { largestMagnitude, type Matrix } from "./matrix.js";
import { t } from "./messages.js";
import type { Role } from "./palette.js";
import type { View } from "./snapshot.js";
import { HEAD_DIM, MODEL_DIM, type Projected } from "./vectors.js";

export interface ViewWords {
  /** The tab. */
  tab: string;
  /** The figure's title: what is seen. */
  title: string;
  symbol: string;
}

export const VIEW_WORDS: Record<View, ViewWords> = {
  x: { tab: t`Vectors`, symbol: "X", title: t`Each token as 32 numbers` },
  q: { tab: t`Queries`, symbol: "Q", title: t`What each word looks for` },
  k: { tab: t`Keys`, symbol: "K", title: t`What each word offers` },
  v: { tab: t`Values`, symbol: "V", title: t`What each word hands over` },
  scores: { tab: t`Scores`, symbol: "S", title: t`How well each query fits each key` },
  mask: { tab: t`Mask`, symbol: "M", title: t`Which words may be looked at` },
  weights: { tab: t`Weights`, symbol: "P", title: t`How much each word looks at every other` },
  output: { tab: t`Output`, symbol: "O", title: t`What each word has gathered` },
};

const ROLE_OF: Partial<Record<View, Role>> = { q: "query", k: "key", v: "value", output: "output" };

const never = () => false;

function vectorMatrix(
  view: View,
  tokens: readonly string[],
  values: Float32Array,
  dim: number,
): Matrix {
  const role = ROLE_OF[view] ?? "plain";
  return {
    title: VIEW_WORDS[view].title,
    kind: "vector",
    ramp: role,
    rowCount: tokens.length,
    columnCount: dim,
    values,
    hidden: never,
    rowLabels: tokens,
    columnLabels: Array.from({ length: dim }, (_, d) => String(d + 1)),
    rowRole: role,
    columnRole: "plain",
    rowName: t`token`,
    columnName: t`dimension`,
    limit: largestMagnitude(values),
  };
}

function pairMatrix(
  view: View,
  tokens: readonly string[],
  values: Float32Array,
  scores: Float32Array,
  limit: number,
): Matrix {
  const kind = view === "weights" ? "weight" : view === "mask" ? "mask" : "score";
  return {
    title: VIEW_WORDS[view].title,
    kind,
    ramp: kind === "weight" ? "weight" : "score",
    rowCount: tokens.length,
    columnCount: tokens.length,
    values,
    hidden: (row, column) => scores[row * tokens.length + column] === -Infinity,
    rowLabels: tokens,
    columnLabels: tokens,
    rowRole: "query",
    columnRole: "key",
    rowName: t`query`,
    columnName: t`key`,
    limit,
  };
}

/**
 * The matrix of `view` for one head. A pair is hidden where heed says so: its final score is
 * -Infinity. Colours of scores are those of temperature 1, so that heating up is seen as fading.
 */
export function viewMatrix(
  view: View,
  head: number,
  tokens: readonly string[],
  projected: Projected,
  attended: Attended,
  temperature: number,
): Matrix {
  const n = tokens.length;
  const ofHead = (all: Float32Array, size: number) =>
    all.subarray(head * n * size, (head + 1) * n * size);
  const scores = ofHead(attended.scores, n);
  const scoreLimit = temperature * largestMagnitude(ofHead(attended.raw, n));
  switch (view) {
    case "x":
      return vectorMatrix(view, tokens, projected.x, MODEL_DIM);
    case "q":
    case "k":
    case "v":
      return vectorMatrix(view, tokens, ofHead(projected[view], HEAD_DIM), HEAD_DIM);
    case "output":
      return vectorMatrix(view, tokens, ofHead(attended.output, HEAD_DIM), HEAD_DIM);
    case "scores":
    case "mask":
      return pairMatrix(view, tokens, scores, scores, scoreLimit);
    case "weights":
      return pairMatrix(view, tokens, ofHead(attended.weights, n), scores, 1);
  }
}
