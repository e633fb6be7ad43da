// Keys and values mixed along the sequence into a few rows.
import { make } from "../../lib/call.js";
import { hashText, normalSource } from "../../lib/random.js";
import { TOKENS } from "../block_mixture/text.js";
import { INPUTS, projectionOf, type Ranked, segmentMeans } from "./ranked.js";

export const MIXTURES = ["means", "random"] as const;
export type Mixture = (typeof MIXTURES)[number];

/** As before training: rows of normal numbers whose sums of squares are 1. */
function randomMixture(count: number): Float32Array {
  const normal = normalSource(hashText("linformer mixture"));
  return Float32Array.from({ length: count * TOKENS }, () => normal() / Math.sqrt(TOKENS));
}

export function linformer(mixture: Mixture): Ranked {
  const parts = mixture === "means" ? segmentMeans : randomMixture;
  return {
    sizes: [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64],
    keys: (size) => size,
    call: (heed, size) =>
      make(heed, {
        id: "linformer",
        inputs: { ...INPUTS, keyProjection: projectionOf(parts(size)) },
        params: {},
      }),
    parts: (_, size) => parts(size),
  };
}
