// What the engine needs to know of a kind of model: everything around attention.
import type { Heed } from "heed";
import type { Matrix } from "./matrix.js";
import type { TensorPlan } from "./tensor_plan.js";
import type { Weights } from "./weights.js";

export interface Sizes {
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly embedDim: number;
  readonly vocabSize: number;
  readonly contextLength: number | null;
  /** A query sees so many of the last tokens, its own included; null: all. */
  readonly window: number | null;
}

/** Rows [len, heads * headDim] of the tokens at positions start, start + 1, ... */
export interface Projected {
  readonly q: Float32Array;
  readonly k: Float32Array;
  readonly v: Float32Array;
}

export interface Style {
  /** [ids.length, embedDim], positions included where they are added. */
  embed(ids: readonly number[], start: number): Float32Array;
  /** Queries, keys and values of x [len, embedDim], normalised first, rotated where the style rotates. */
  project(layer: number, x: Float32Array, start: number): Projected;
  /** x plus the projected outputs of the heads [len, numHeads * headDim], in place. */
  addHeads(layer: number, x: Float32Array, heads: Float32Array): void;
  /** x plus its feed-forward network, in place. */
  addFeedForward(layer: number, x: Float32Array): void;
  /** Logits [len, vocabSize] of x. */
  logits(x: Float32Array): Float32Array;
}

/** A model that was recognised by its tensors; nothing but the header has been read. */
export interface ModelPlan {
  readonly name: "gpt2" | "llama";
  readonly plan: TensorPlan;
  readonly sizes: Sizes;
  readonly endTokens: readonly number[];
  /** After the weights were read. */
  make(heed: Heed, weights: Weights): Style;
}

export function addTo(x: Float32Array, more: Float32Array): void {
  for (let n = 0; n < x.length; n++) x[n] = (x[n] as number) + (more[n] as number);
}

/** Adds a vector to each row, in place. */
export function addBias(rows: Float32Array, bias: Float32Array | undefined): Float32Array {
  if (bias === undefined) return rows;
  const { length } = bias;
  for (let n = 0; n < rows.length; n++)
    rows[n] = (rows[n] as number) + (bias[n % length] as number);
  return rows;
}

/** x W^T + b of a tensor pair that PyTorch's Linear made; the bias may be missing. */
export function linear(weights: Weights, name: string, x: Float32Array): Float32Array {
  const matrix = weights.matrix(`${name}.weight`);
  const y = matrix.timesTransposed(x, x.length / matrix.columns);
  return addBias(y, weights.vectorIfThere(`${name}.bias`));
}

/** x W + b of a tensor pair that GPT-2's Conv1D made. */
export function conv1d(weights: Weights, name: string, x: Float32Array): Float32Array {
  const matrix: Matrix = weights.matrix(`${name}.weight`);
  return addBias(matrix.times(x, x.length / matrix.rows), weights.vector(`${name}.bias`));
}
