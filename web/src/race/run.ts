// The race itself, in whichever worker or process this module is loaded: the same problem for all, in
// turn, with the clock and the statistics of web_bench.

import type { Heed } from "heed";
import { measureInterleaved, warmUp } from "../../../web_bench/measure.mjs";
import { makeProblem } from "../../../web_bench/problem.mjs";
import { oracleRows, relativeDistance } from "../../../web_bench/verify.mjs";
import { t } from "../lib/messages.js";
import type { Contestant, Problem, Ready } from "./contestants.js";
import type { Effort, RaceRequest } from "./request.js";

export interface Summary {
  median: number;
  p10: number;
  p90: number;
  min: number;
}

export interface RaceRow {
  contestant: string;
  title: string;
  kind: "mechanism" | "peer";
  length: number;
  /** Which tokens each token sees. */
  sees: "all" | "past";
  status: "timed" | "skipped" | "failed";
  /** Why there is no time. */
  reason?: string;
  /** Milliseconds of a call. */
  ms?: Summary;
  /** Milliseconds of a call, one number a sample. */
  samples?: readonly number[];
  /** Root mean square of output - exact over that of exact. */
  distance?: number;
  /** The WebAssembly memory of its instance after the calls: it never shrinks. */
  heapBytes?: number;
  /** What the kernel allocates for a call, by heed.estimateCost. */
  scratchBytes?: number;
}

export interface Progress {
  text: string;
  done: number;
  total: number;
}

export interface Track {
  contestants: readonly Contestant[];
  /** Computes the exact rows. */
  reference: Heed["reference"];
  tell: (news: { row: RaceRow } | { progress: Progress }) => void;
}

/** min_reps samples and min_seconds of them, unless max_seconds are over. */
export const PLANS: Readonly<
  Record<Effort, { min_reps: number; min_seconds: number; max_seconds: number }>
> = {
  quick: { min_reps: 7, min_seconds: 0.15, max_seconds: 1.5 },
  thorough: { min_reps: 21, min_seconds: 0.75, max_seconds: 8 },
};
export const WARM_SECONDS: Readonly<Record<Effort, number>> = { quick: 0.05, thorough: 0.25 };
/** No call that would take longer is begun. */
const MOST_CALL_MS: Readonly<Record<Effort, number>> = { quick: 2500, thorough: 10_000 };

export const HEAD_DIM = 64;
export const SEED = 1;
/** How many rows of a long problem are compared. */
const ROWS_COMPARED = 32;

export function problemOf(length: number, sees: RaceRow["sees"]): Problem {
  const mask = sees === "past" ? "causal" : "full";
  const lengths = { q_len: length, kv_len: length, head_dim: HEAD_DIM, head_dim_v: HEAD_DIM };
  const shape = { batch: 1, num_heads: 1, num_kv_heads: 1, ...lengths, mask };
  return makeProblem({ shape, resident: false, threads: 1 }, SEED);
}

/** Rows divided by their length: what queries are compared with where they are keys as well. */
function unitRows({ data, shape }: Problem["k"]): Problem["k"] {
  const width = shape.at(-1) ?? 1;
  const unit = Float32Array.from(data);
  for (let at = 0; at < unit.length; at += width) {
    const row = unit.subarray(at, at + width);
    const norm = Math.hypot(...row);
    for (let d = 0; d < width; d++) row[d] = (row[d] as number) / norm;
  }
  return { data: unit, shape };
}

/** The exact rows of a length, computed once for all that see the same. */
class Exact {
  private readonly known = new Map<string, Promise<Awaited<ReturnType<typeof oracleRows>>>>();

  constructor(
    private readonly length: number,
    private readonly reference: Heed["reference"],
  ) {}

  private rows(sees: RaceRow["sees"], sharesKeys: boolean) {
    const name = `${sees} ${sharesKeys}`;
    const found = this.known.get(name);
    if (found) return found;
    const problem = problemOf(this.length, sees);
    const shared = { ...problem, k: unitRows(problem.q), othersOnly: true };
    const reference = this.reference as Parameters<typeof oracleRows>[1];
    const made = oracleRows(sharesKeys ? shared : problem, reference, ROWS_COMPARED);
    this.known.set(name, made);
    return made;
  }

  async distance({ sees, sharesKeys }: Contestant, output: ArrayLike<number>): Promise<number> {
    const rows = await this.rows(sees, sharesKeys);
    return relativeDistance(output, rows, problemOf(this.length, sees));
  }
}

/** The last calls, to foresee those that would take too long: as if time grew with the square. */
class Pace {
  private readonly known = new Map<string, { length: number; ms: number }>();

  learn({ id }: Contestant, length: number, ms: number): void {
    this.known.set(id, { length, ms });
  }

  foresee({ id }: Contestant, length: number): number {
    const last = this.known.get(id);
    return last ? last.ms * (length / last.length) ** 2 : 0;
  }
}

interface Runner {
  contestant: Contestant;
  row: RaceRow;
  ready: Ready;
  warm: number;
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

/** All lengths in order. Rows are told as they are finished. */
export async function race(request: RaceRequest, track: Track): Promise<void> {
  const { contestants, reference, tell } = track;
  const pace = new Pace();
  const total = request.lengths.length * (contestants.length + 1);
  let done = 0;
  const step = (text: string) => tell({ progress: { text, done: done++, total } });

  async function enter(contestant: Contestant, length: number, exact: Exact) {
    const { id, title, kind, sees } = contestant;
    const row: RaceRow = { contestant: id, title, kind, length, sees, status: "skipped" };
    const foreseen = pace.foresee(contestant, length);
    if (foreseen > MOST_CALL_MS[request.effort]) {
      row.reason = t`a call might take ${(foreseen / 1000).toFixed(0)} s`;
      return { row };
    }
    let ready: Ready | undefined;
    try {
      ready = await contestant.prepare(problemOf(length, sees));
      const warm = await warmUp(ready.call, WARM_SECONDS[request.effort]);
      pace.learn(contestant, length, warm);
      row.distance = await exact.distance(contestant, ready.output());
      return { row, runner: { contestant, row, ready, warm } };
    } catch (error) {
      await ready?.dispose();
      return { row: { ...row, status: "failed" as const, reason: messageOf(error) } };
    }
  }

  for (const length of request.lengths) {
    const exact = new Exact(length, reference);
    const runners: Runner[] = [];
    for (const contestant of contestants) {
      step(t`${length} tokens: ${contestant.title} warms up`);
      const { row, runner } = await enter(contestant, length, exact);
      if (runner) runners.push(runner);
      else tell({ row });
    }
    step(t`${length} tokens: ${runners.length} in turn`);
    const calls = runners.map(({ ready, warm }) => ({ call: ready.call, warm }));
    const results = await measureInterleaved(calls, PLANS[request.effort]);
    for (const [index, { row, ready }] of runners.entries()) {
      const { ms, samples } = results[index] as (typeof results)[number];
      const memory = ready.memory?.() ?? {};
      await ready.dispose();
      tell({ row: { ...row, ...memory, status: "timed", ms, samples } });
    }
  }
}

/** The smallest step of this clock that was seen, in milliseconds. */
export function clockStep(): number {
  let smallest = Infinity;
  for (let changes = 0, last = performance.now(); changes < 50; ) {
    const now = performance.now();
    if (now <= last) continue;
    smallest = Math.min(smallest, now - last);
    last = now;
    changes++;
  }
  return smallest;
}
