// What one token takes in the caches of four ways to keep keys and values, measured on heed's own; and that
// the two forms of latent attention give the same weights.
import type { Heed } from "heed";
import { type Called, floats, make } from "../../lib/call.js";
import type { ExampleTensor } from "../../lib/example.js";
import { hashText, normalSource } from "../../lib/random.js";
import { bytesPerToken } from "../grouped_query/sharing.js";

export interface Sizes {
  heads: number;
  /** Of a head's keys and of its values. */
  headDim: number;
  /** Sets of keys and values of grouped-query attention. */
  sets: number;
  /** Width of the latent row, and of the key that carries position. */
  latent: number;
  position: number;
}
/** DeepSeek-V2's sizes. */
export const RESTING: Sizes = { heads: 128, headDim: 128, sets: 8, latent: 512, position: 64 };

export type Way = "multi_head" | "grouped_query" | "multi_query" | "multi_head_latent";

/** Bytes per token and layer in float16. */
export function cacheBytes(
  heed: Heed,
  { heads, headDim, sets, latent, position }: Sizes,
): Record<Way, number> {
  return {
    multi_head: bytesPerToken(heed, heads, headDim),
    grouped_query: bytesPerToken(heed, Math.min(sets, heads), headDim),
    multi_query: bytesPerToken(heed, 1, headDim),
    // One row that all heads share: the latent, and beside it the rotated key.
    multi_head_latent: bytesPerToken(heed, 1, latent, position),
  };
}

/** A small layer: [heads, width] of queries, keys, values, and of the row that is kept. */
const SMALL = { len: 12, embed: 24, heads: 4, dim: 8, rank: 6, position: 4 };

function drawn(name: string, ...shape: number[]): ExampleTensor {
  const normal = normalSource(hashText(`latent ${name}`));
  const count = shape.reduce((product, extent) => product * extent, 1);
  const size = 1 / Math.sqrt(shape.at(-1) ?? 1);
  return floats(
    Array.from({ length: count }, () => size * normal()),
    shape,
  );
}

export interface Forms {
  called: Called;
  /** The largest difference between the weights of the two forms. */
  difference: number;
}

export function forms(heed: Heed): Forms {
  const { len, embed, heads, dim, rank, position } = SMALL;
  const inputs = {
    x: drawn("x", 1, len, embed),
    wDq: drawn("dq", rank, embed),
    wUq: drawn("uq", heads, dim, rank),
    wQr: drawn("qr", heads, position, rank),
    wDkv: drawn("dkv", rank, embed),
    wKr: drawn("kr", position, embed),
    wUk: drawn("uk", heads, dim, rank),
    wUv: drawn("uv", heads, dim, rank),
    wO: drawn("o", embed, heads, dim),
  };
  const params = { rope: "half", causal: true, returnWeights: true };
  const run = (form: string) =>
    make(heed, { id: "multi_head_latent", inputs, params: { ...params, form } });
  const [naive, called] = [run("naive"), run("absorbed")];
  const weights = called.results.weights?.data as Float32Array;
  const other = naive.results.weights?.data as Float32Array;
  const difference = weights.reduce(
    (most, weight, at) => Math.max(most, Math.abs(weight - (other[at] as number))),
    0,
  );
  return { called, difference };
}
