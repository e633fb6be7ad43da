// Keys and values of the tokens so far, in heed's memory: attention reads them where they lie. heed's own
// KvCache gives no weights, and the page draws them.
import type { Heed, Tensor } from "heed";
import type { Sizes } from "./style.js";

export interface KeysAndValues {
  readonly k: Tensor<"float32">;
  readonly v: Tensor<"float32">;
}

export class KeyCache {
  private readonly layers: KeysAndValues[] = [];

  /** Room for `capacity` tokens; rows [capacity, numKvHeads, headDim] of each layer. */
  constructor(heed: Heed, { numLayers, numKvHeads, headDim }: Sizes, capacity: number) {
    const shape = [1, capacity, numKvHeads, headDim];
    const empty = () => heed.tensor(new Float32Array(capacity * numKvHeads * headDim), shape);
    try {
      for (let layer = 0; layer < numLayers; layer++) this.layers.push({ k: empty(), v: empty() });
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /** Stores rows [len, numKvHeads * headDim] from `position` on, and gives what the layer has. */
  extend(layer: number, position: number, k: Float32Array, v: Float32Array): KeysAndValues {
    const stored = this.layers[layer] as KeysAndValues;
    const [, , heads, dim] = stored.k.shape as [number, number, number, number];
    stored.k.data.set(k, position * heads * dim);
    stored.v.data.set(v, position * heads * dim);
    return stored;
  }

  dispose(): void {
    for (const { k, v } of this.layers) {
      k.dispose();
      v.dispose();
    }
  }
}
