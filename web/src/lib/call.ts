// A call of a mechanism by its id, as the mechanisms' pages make it, and its agreement with the
// float64 reference.
import type { Heed } from "heed";
import type { ExampleParams, ExampleTensor } from "./example.js";

export interface Call {
  id: string;
  inputs: Readonly<Record<string, ExampleTensor>>;
  params: ExampleParams;
}

export interface CallResult {
  readonly data: Float32Array;
  readonly shape: readonly number[];
}

export interface Called {
  call: Call;
  results: Readonly<Record<string, CallResult>>;
  milliseconds: number;
}

/** Throws HeedError. */
export function make(heed: Heed, call: Call): Called {
  const start = performance.now();
  const results = heed.run(call.id, call.inputs, call.params);
  const milliseconds = performance.now() - start;
  return { call, results: results as unknown as Called["results"], milliseconds };
}

/** A result that the call was asked for. */
export function resultOf({ results, call }: Called, name: string): CallResult {
  const found = results[name];
  if (!found) throw new Error(`${call.id} returned no ${name}`);
  return found;
}

/** The largest |a - b| over max(1, |b|); a NaN on either side alone counts as infinite. */
function relativeDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  if (a.length !== b.length) return Infinity;
  let largest = 0;
  for (let at = 0; at < a.length; at++) {
    const [x, y] = [a[at] as number, b[at] as number];
    if (Object.is(x, y) || x === y) continue;
    const difference = Math.abs(x - y) / Math.max(1, Math.abs(y));
    if (!(difference <= largest)) largest = Number.isNaN(difference) ? Infinity : difference;
  }
  return largest;
}

/** The largest difference of any result from the float64 reference, over max(1, |value|). */
export async function disagreement(heed: Heed, { call, results }: Called): Promise<number> {
  const truth = (await heed.reference(call.id, call.inputs, call.params)) as unknown as Record<
    string,
    { data: ArrayLike<number> } | undefined
  >;
  const differences = Object.entries(results).map(([name, { data }]) =>
    relativeDifference(data, truth[name]?.data ?? []),
  );
  return Math.max(0, ...differences);
}

export const floats = (values: ArrayLike<number>, shape: number[]): ExampleTensor => ({
  data: Float32Array.from(values),
  shape,
});
