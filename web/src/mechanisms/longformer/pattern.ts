// Which keys each query sees, asked of heed without any q and k, and what that saves.

import type { Heed } from "heed";
import type { ExampleParams, ExampleTensor } from "../../lib/example.js";
import { t } from "../../lib/messages.js";

export const LENGTHS = [64, 256, 1024, 4096] as const;
export type Length = (typeof LENGTHS)[number];
const DIM = 64;

/** q and k are read for their shapes alone. */
function inputsOf(length: number, extra: Readonly<Record<string, ExampleTensor>>) {
  const data = new Float32Array(length * DIM);
  const tensor = { data, shape: [1, 1, length, DIM] };
  return { q: tensor, k: tensor, v: tensor, ...extra };
}

export interface Pattern {
  length: number;
  /** [length, length], 1 where the query sees the key. */
  picture: Uint8Array;
  /** How many keys each query sees. */
  counts: Int32Array;
  visible: number;
  /** Multiply-adds counted as 2, of this pattern and of all pairs. */
  flops: number;
  fullFlops: number;
  milliseconds: number;
}

export function patternOf(
  heed: Heed,
  id: string,
  length: number,
  params: ExampleParams,
  extra: Readonly<Record<string, ExampleTensor>>,
): Pattern {
  const inputs = inputsOf(length, extra);
  const start = performance.now();
  const picture = heed.explain(id, inputs, params).data as Uint8Array;
  const milliseconds = performance.now() - start;
  const counts = new Int32Array(length);
  let visible = 0;
  for (let row = 0; row < length; row++) {
    let count = 0;
    for (let at = row * length; at < (row + 1) * length; at++) count += picture[at] as number;
    counts[row] = count;
    visible += count;
  }
  const { q, k, v } = inputs;
  const full = heed.estimateCost("scaled_dot_product", { q, k, v }, {});
  return {
    length,
    picture,
    counts,
    visible,
    flops: heed.estimateCost(id, inputs, params).flops ?? Number.NaN,
    fullFlops: full.flops ?? Number.NaN,
    milliseconds,
  };
}

/** Runs of keys that a query sees: "1 to 4, 61 to 67". */
export function runsOf({ picture, length }: Pattern, row: number, most = 6): string {
  const runs: string[] = [];
  for (let column = 0; column < length; ) {
    if (picture[row * length + column] === 0) {
      column++;
      continue;
    }
    let end = column;
    while (end + 1 < length && picture[row * length + end + 1] === 1) end++;
    runs.push(end === column ? String(column + 1) : t`${column + 1} to ${end + 1}`);
    column = end + 1;
  }
  const rest = runs.length - most;
  return rest > 0 ? t`${runs.slice(0, most).join(", ")} and ${rest} more runs` : runs.join(", ");
}
