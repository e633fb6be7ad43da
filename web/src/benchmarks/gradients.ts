// Gradients of many mechanisms at one length: what a backward pass takes, beside its forward pass.
import type { DotRow } from "../lib/dots.js";
import { t } from "../lib/messages.js";
import { type Context, distinct } from "./results.js";

export interface GradientRow {
  mechanism: string;
  mask: string;
  /** Milliseconds of the backward call and of the forward call, medians. */
  ms: number;
  forward: number;
  /** Absent where the work has not been counted. */
  gflops?: number;
}

export interface GradientRun extends Context {
  headDim: number;
  length: number;
  heads: number;
  threads: number;
  rows: readonly GradientRow[];
}

export const MEASURES = ["ratio", "ms", "gflops"] as const;
export type Measure = (typeof MEASURES)[number];

export const MEASURE_WORDS: Readonly<Record<Measure, { choice: string; axis: string }>> = {
  ratio: { choice: t`against the forward pass`, axis: t`time of the gradients, forward pass = 1` },
  ms: { choice: t`time`, axis: t`milliseconds of the gradients` },
  gflops: { choice: t`speed`, axis: t`GFLOP/s of the gradients` },
};

export function measured(
  { ms, forward, gflops }: GradientRow,
  measure: Measure,
): number | undefined {
  if (measure === "ratio") return ms / forward;
  return measure === "ms" ? ms : gflops;
}

/** A row a mechanism, the dearest last: filled as it is defined, a ring under a causal mask. */
export function gradientRows({ rows }: GradientRun, measure: Measure): DotRow[] {
  const of = (mechanism: string, mask: string) => {
    const row = rows.find((other) => other.mechanism === mechanism && other.mask === mask);
    return row && measured(row, measure);
  };
  const all = distinct(rows.map(({ mechanism }) => mechanism)).map((name) => ({
    name,
    value: of(name, "full"),
    other: of(name, "causal"),
  }));
  const place = ({ value, other }: DotRow) => value ?? other ?? 0;
  return all
    .filter(({ value, other }) => value !== undefined || other !== undefined)
    .sort((a, b) => place(a) - place(b));
}
