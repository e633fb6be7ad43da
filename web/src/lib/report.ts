// Everything the sentence figure shows, as JSON: enough to compute it again elsewhere.

import { type Attended, request } from "./engine.js";
import { fixed } from "./format.js";
import { t } from "./messages.js";
import type { Snapshot } from "./snapshot.js";
import { HEADS, type Projected } from "./vectors.js";

export const REPORT_FORMAT = "heed-figure-1";

/** Every setting away from its default as a sentence, or "". */
export function settingsSentence(settings: Snapshot): string {
  const { temperature, softcap, alibi, causal, left, right, first, hidden } = settings;
  const parts = [
    temperature !== 1 && t`temperature ${fixed(temperature, 2)}`,
    softcap !== null && t`softcap ${fixed(softcap, 1)}`,
    alibi > 0 && t`ALiBi slope ${fixed(alibi, 2)}`,
    causal && t`each word sees only its past`,
    left !== null && t`at most ${left} before`,
    right !== null && t`at most ${right} after`,
    first !== null && t`only the first ${first}`,
    hidden.size > 0 && t`${hidden.size} painted cells`,
  ].filter((part) => part !== false);
  return parts.length ? t`Settings: ${parts.join(", ")}.` : "";
}

/** [heads, rows, columns] as nested arrays; -Infinity (a hidden score) becomes null. */
function nested(data: Float32Array, heads: number, rows: number): (number | null)[][][] {
  const columns = rows ? data.length / (heads * rows) : 0;
  return Array.from({ length: heads }, (_, head) =>
    Array.from({ length: rows }, (_, row) =>
      Array.from({ length: columns }, (_, column) => {
        const value = data[(head * rows + row) * columns + column] ?? Number.NaN;
        return Number.isFinite(value) ? value : null;
      }),
    ),
  );
}

export function report(
  tokens: readonly string[],
  projected: Projected,
  attended: Attended,
  settings: Snapshot,
): object {
  const n = tokens.length;
  const heads = HEADS.length;
  const { extras, params } = request(projected, settings, settings);
  const keep = extras.keep && Array.from(extras.keep.data);
  return {
    format: REPORT_FORMAT,
    mechanism: "scaled_dot_product",
    text: settings.text,
    tokens,
    heads: HEADS.map((head) => head.title),
    head: settings.head,
    view: settings.view,
    pin: settings.pin,
    params,
    keep: keep && Array.from({ length: n }, (_, row) => keep.slice(row * n, (row + 1) * n)),
    keyLength: extras.keyLengths?.data[0] ?? null,
    alibiSlope: extras.alibiSlopes?.data[0] ?? null,
    q: nested(projected.q, heads, n),
    k: nested(projected.k, heads, n),
    v: nested(projected.v, heads, n),
    scores: nested(attended.scores, heads, n),
    weights: nested(attended.weights, heads, n),
    output: nested(attended.output, heads, n),
  };
}
