// The cost of a realistic call against its length: heed.estimateCost, nothing is run.
import type { Heed, Mechanism, MechanismInput, Parameter } from "heed";
import type { ExampleTensor } from "./example.js";
import { product, REALISTIC_HEAD_DIM, realisticCall } from "./realistic.js";

export const COST_LENGTHS: readonly number[] = [512, 1024, 2048, 4096, 8192];
export const COST_HEAD_DIM = REALISTIC_HEAD_DIM;

export interface CostPoint {
  length: number;
  flops: number;
  scratchBytes: number;
}

/** Only what is checked about the values matters: nothing is computed with them. */
const anyFloats = (input: MechanismInput, shape: readonly number[]) =>
  new Float32Array(product(shape)).fill(input.draw === "log_gate" ? -0.1 : 0.5);

type Inputs = Readonly<Record<string, ExampleTensor>>;

/**
 * Of examples with an optional bias, with which the work grows faster. One number stands for that of every
 * pair: the same is multiplied, and nothing large has to be held.
 */
export const BIASES: Readonly<Record<string, Inputs>> = {
  attention_free: { bias: { data: Float32Array.of(0.5), shape: [1, 1] } },
};

/** Undefined where the mechanism's work has not been counted. Throws HeedError. */
export function costAt(
  heed: Heed,
  mechanism: Mechanism,
  length: number,
  more: Inputs | undefined = BIASES[mechanism.id],
): CostPoint | undefined {
  const parameters = new Map(heed.parameters.map((row): [string, Parameter] => [row.name, row]));
  const { inputs, params } = realisticCall(mechanism, parameters, length, anyFloats);
  const { flops, scratchBytes } = heed.estimateCost(mechanism.id, { ...inputs, ...more }, params);
  if (flops === undefined || scratchBytes === undefined) return undefined;
  return { length, flops, scratchBytes };
}
