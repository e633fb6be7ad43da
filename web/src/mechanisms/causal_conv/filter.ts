// One channel behind a short filter: what each token becomes, and the same one token at a time.
import type { Heed } from "heed";
import { type Called, floats, make, resultOf } from "../../lib/call.js";
import type { ExampleParams } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";

export const TOKENS = 24;
export const TAPS = 4;
export const RESTING: readonly number[] = [0.25, 0.25, 0.25, 0.25];
export const RANGE = { min: -1, max: 1, step: 0.05 };

export const SIGNALS = ["pulse", "step", "noise"] as const;
export type Signal = (typeof SIGNALS)[number];
const START = 6;

export function signalOf(signal: Signal): number[] {
  const normal = normalSource(hashText("short convolution"));
  return Array.from({ length: TOKENS }, (_, at) => {
    if (signal === "pulse") return at === START ? 1 : 0;
    if (signal === "step") return at < START ? 0 : 1;
    return Math.sin((2 * Math.PI * at) / 16) + 0.4 * normal();
  });
}

export interface Filtered {
  called: Called;
  signal: number[];
  output: Float32Array;
  /** The same, each token given alone beside the inputs before it. */
  stepped: number[];
}

export function filtered(
  heed: Heed,
  signal: Signal,
  taps: readonly number[],
  convActivation: "none" | "silu",
): Filtered {
  const x = signalOf(signal);
  const convWeight = floats(taps, [1, TAPS]);
  const params: ExampleParams = { convActivation };
  const called = make(heed, {
    id: "causal_conv",
    inputs: { signal: floats(x, [1, TOKENS, 1]), convWeight },
    params,
  });
  let convState = floats(new Float32Array(TAPS - 1), [1, TAPS - 1, 1]);
  const stepped = x.map((value) => {
    const inputs = { signal: floats([value], [1, 1, 1]), convWeight, convState };
    const { output, state } = heed.run("causal_conv", inputs, { ...params, returnState: true });
    convState = floats(state?.data as Float32Array, [1, TAPS - 1, 1]);
    return output.data[0] as number;
  });
  return { called, signal: x, output: resultOf(called, "output").data, stepped };
}

const text = (taps: readonly number[]) => taps.map(String).join(",");
/** A link is input from a stranger: four whole steps in range, or nothing. */
export function tapsIn(asked: string): number[] | null {
  const values = asked.split(",").map((part) => (part.trim() === "" ? Number.NaN : Number(part)));
  const fits = (value: number) => {
    const steps = Math.round(value / RANGE.step);
    return Math.abs(value) <= RANGE.max && Math.abs(value - steps * RANGE.step) < 1e-6;
  };
  return values.length === TAPS && values.every(fits) ? values : null;
}
export { text as tapsText };
