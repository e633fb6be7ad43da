// Means of segments as landmarks.

import type { Heed } from "heed";
import { make, resultOf } from "../../lib/call.js";
import { INPUTS, type Ranked, segmentMeans } from "../linformer/ranked.js";

export const nystrom = (iterations: number): Ranked => ({
  sizes: [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64],
  keys: (size) => size,
  call: (heed, numLandmarks) =>
    make(heed, { id: "nystrom", inputs: INPUTS, params: { numLandmarks, iterations } }),
  parts: (_, size) => segmentMeans(size),
});

/** How far the iterations are from the pseudo-inverse. */
export function residualOf(heed: Heed, numLandmarks: number, iterations: number): number {
  const params = { numLandmarks, iterations, returnResidual: true };
  return resultOf(make(heed, { id: "nystrom", inputs: INPUTS, params }), "residual")
    .data[0] as number;
}
