// The layers of a model, one after the other; attention is heed's.
import type { Heed, MatrixArgument } from "heed";
import type { KeyCache } from "./key_cache.js";
import { type Result, taken } from "./matrix.js";
import type { Head } from "./model_types.js";
import type { Projected, Sizes, Style } from "./style.js";

export interface ForwardRequest {
  readonly ids: readonly number[];
  /** Position of the first id; the cache holds what is before. */
  readonly start: number;
  readonly cache: KeyCache | null;
  readonly pruned: readonly Head[];
  /** Of which rows, of which layers, weights are wanted. */
  readonly heads: { readonly rows: "all" | "last"; readonly layers: ReadonlySet<number> };
  /** Called between layers: others get their turn, and it throws where the call was aborted. */
  readonly pause: () => Promise<void>;
}

export interface Forwarded {
  /** [len, embedDim] after the last layer. */
  readonly x: Float32Array;
  /** [numHeads, rows, keys] by layer; keys are all positions so far. */
  readonly weights: ReadonlyMap<number, Float32Array>;
}

/** The first `keys` columns of rows that have `capacity`. */
function cropped(weights: Float32Array, capacity: number, keys: number): Float32Array {
  if (capacity === keys) return weights;
  const rows = weights.length / capacity;
  const crop = new Float32Array(rows * keys);
  for (let row = 0; row < rows; row++)
    crop.set(weights.subarray(row * capacity, row * capacity + keys), row * keys);
  return crop;
}

export class Forward {
  constructor(
    private readonly heed: Heed,
    private readonly style: Style,
    private readonly sizes: Sizes,
  ) {}

  async run(request: ForwardRequest): Promise<Forwarded> {
    const { ids, start, heads, pause, pruned } = request;
    const { numLayers } = this.sizes;
    const x = this.style.embed(ids, start);
    const weights = new Map<number, Float32Array>();
    for (let layer = 0; layer < numLayers; layer++) {
      await pause();
      const projected = this.style.project(layer, x, start);
      const stored = this.keysAndValues(layer, projected, request);
      if (heads.layers.has(layer)) weights.set(layer, this.weightsOf(projected.q, stored, request));
      const output = this.attend(projected.q, stored, start);
      for (const { layer: of, head } of pruned) if (of === layer) this.drop(output, head);
      this.style.addHeads(layer, x, output);
      this.style.addFeedForward(layer, x);
    }
    await pause();
    return { x, weights };
  }

  private rows(data: Float32Array, heads: number): { data: Float32Array; shape: number[] } {
    const { headDim } = this.sizes;
    return { data, shape: [1, data.length / (heads * headDim), heads, headDim] };
  }

  private keysAndValues(
    layer: number,
    { k, v }: Projected,
    { cache, start }: ForwardRequest,
  ): { k: MatrixArgument; v: MatrixArgument; capacity: number } {
    const { numKvHeads } = this.sizes;
    if (cache === null) {
      const [keys, values] = [this.rows(k, numKvHeads), this.rows(v, numKvHeads)];
      return { k: keys, v: values, capacity: keys.shape[1] as number };
    }
    const stored = cache.extend(layer, start, k, v);
    return { ...stored, capacity: stored.k.shape[1] as number };
  }

  /** Which keys the query at `position` and those after it see. */
  private rules(position: number) {
    const { window } = this.sizes;
    return {
      layout: "blhd",
      causal: true,
      queryOffset: position,
      ...(window !== null && { window: { left: window - 1 } }),
    } as const;
  }

  /** [len, numHeads * headDim] */
  private attend(
    q: Float32Array,
    { k, v }: { k: MatrixArgument; v: MatrixArgument },
    start: number,
  ): Float32Array {
    const queries = this.rows(q, this.sizes.numHeads);
    return taken(this.heed.attention(queries, k, v, this.rules(start)).output as Result);
  }

  private weightsOf(
    q: Float32Array,
    { k, v, capacity }: { k: MatrixArgument; v: MatrixArgument; capacity: number },
    { heads, ids, start }: ForwardRequest,
  ): Float32Array {
    const { numHeads, headDim } = this.sizes;
    const first = heads.rows === "all" ? 0 : ids.length - 1;
    const queries = this.rows(q.subarray(first * numHeads * headDim), numHeads);
    const options = { ...this.rules(start + first), returnWeights: true } as const;
    const { output, weights } = this.heed.attention(queries, k, v, options);
    taken(output as Result);
    return cropped(taken(weights as Result), capacity, start + ids.length);
  }

  /** The head's output counts as zero, in place. */
  private drop(output: Float32Array, head: number): void {
    const { numHeads, headDim } = this.sizes;
    const width = numHeads * headDim;
    for (let row = 0; row < output.length; row += width)
      output.fill(0, row + head * headDim, row + (head + 1) * headDim);
  }
}
