import { DIM, VECTORS } from "../gated_linear/story.js";

/** The key that a token erases: its own, or that of the token before. */
export const ERASED = ["own", "before"] as const;
export type Erased = (typeof ERASED)[number];

export function eraseInputs(erased: Erased, rate: number): Record<string, Float32Array> {
  const eraseKey = new Float32Array(VECTORS.length);
  // The first token has none before it: zeros erase nothing.
  if (erased === "own") eraseKey.set(VECTORS);
  else eraseKey.set(VECTORS.subarray(0, VECTORS.length - DIM), DIM);
  return { eraseKey, eraseRate: new Float32Array(VECTORS.length).fill(rate) };
}
