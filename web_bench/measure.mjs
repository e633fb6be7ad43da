// Timing: several programs on one problem, in turn, as native_bench/measure.cc does it.

const SAMPLE_MS = 2;
const MOST_CALLS = 1e5;

/** The value below which `fraction` of the samples lie, linear between neighbours. */
export function quantile(samples, fraction) {
  const sorted = Float64Array.from(samples).sort();
  const position = fraction * (sorted.length - 1);
  const below = Math.floor(position);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (position - below) * (sorted[above] - sorted[below]);
}

export const summarize = (samples) => ({
  median: quantile(samples, 0.5),
  p10: quantile(samples, 0.1),
  p90: quantile(samples, 0.9),
  min: quantile(samples, 0),
});

/** Whether `reps` samples over `ms` want another: until both minima are reached, or the maximum is. */
export function needsAnother(plan, reps, ms) {
  if (reps === 0) return true;
  if (ms > 1000 * plan.max_seconds) return false;
  return reps < plan.min_reps || ms < 1000 * plan.min_seconds;
}

/** Milliseconds of some calls one after another; only promises are waited for. */
async function sample(call, calls) {
  const begin = performance.now();
  for (let n = 0; n < calls; n++) {
    const result = call();
    if (result instanceof Promise) await result;
  }
  return performance.now() - begin;
}

/**
 * Calls once and goes on for `seconds`: engines compile again what runs often.
 * @param {() => unknown} call
 * @param {number} seconds
 * @returns {Promise<number>} milliseconds of the quickest call
 */
export async function warmUp(call, seconds) {
  let quickest = Infinity;
  for (let spent = 0; quickest === Infinity || spent < 1000 * seconds; ) {
    const begin = performance.now();
    await call();
    const took = performance.now() - begin;
    quickest = Math.min(quickest, took);
    spent += Math.max(took, 1e-3);
  }
  return quickest;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Rounds run A B C, C B A, ..., so that whatever disturbs the machine disturbs all alike. A sample is
 * as many calls as fill two milliseconds, by the time that a warm call took. Threads that go on spinning
 * for a while when their work is done would take it from the next program: with more than one, `restMs`
 * pass before every sample. A program that is alone needs no rest.
 * @param {{call: () => unknown, warm: number}[]} candidates
 * @param {{min_reps: number, min_seconds: number, max_seconds: number}} plan
 * @param {number} [restMs]
 * @returns per candidate {ms: summary of one call, reps: how many samples, samples: milliseconds of one call}
 */
export async function measureInterleaved(candidates, plan, restMs = 0) {
  const states = candidates.map(({ call, warm }) => ({
    call,
    calls: Math.min(MOST_CALLS, Math.max(1, Math.ceil(SAMPLE_MS / Math.max(warm, 1e-6)))),
    samples: [],
    spent: 0,
  }));
  let order = states;
  for (let any = true; any; order = [...order].reverse()) {
    any = false;
    for (const state of order) {
      if (!needsAnother(plan, state.samples.length, state.spent)) continue;
      if (restMs > 0 && states.length > 1) await pause(restMs);
      const ms = await sample(state.call, state.calls);
      state.samples.push(ms / state.calls);
      state.spent += ms;
      any = true;
    }
  }
  return states.map(({ samples }) => ({ ms: summarize(samples), reps: samples.length, samples }));
}
