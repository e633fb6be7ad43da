import type { HeadSizes, Weight } from "./layer.js";

/** Sizes and parts of the projections of a layer. */
export interface ProjectionSizes extends HeadSizes {
  readonly kdim: number;
  readonly vdim: number;
  readonly bias: boolean;
  readonly addBiasKv: boolean;
}

const rowsOf = ({ numHeads, numKvHeads, headDim, headDimV }: ProjectionSizes) => ({
  q: numHeads * headDim,
  k: numKvHeads * headDim,
  v: numKvHeads * headDimV,
  heads: numHeads * headDimV,
});

/** The names and shapes of PyTorch's nn.MultiheadAttention. */
export function stateShapes(s: ProjectionSizes): Map<string, readonly number[]> {
  const { q, k, v, heads } = rowsOf(s);
  const shapes = new Map<string, readonly number[]>();
  if (s.kdim === s.embedDim && s.vdim === s.embedDim) {
    shapes.set("in_proj_weight", [q + k + v, s.embedDim]);
  } else {
    shapes.set("q_proj_weight", [q, s.embedDim]);
    shapes.set("k_proj_weight", [k, s.kdim]);
    shapes.set("v_proj_weight", [v, s.vdim]);
  }
  if (s.bias) shapes.set("in_proj_bias", [q + k + v]);
  if (s.addBiasKv) shapes.set("bias_k", [1, 1, k]).set("bias_v", [1, 1, v]);
  shapes.set("out_proj.weight", [s.embedDim, heads]);
  if (s.bias) shapes.set("out_proj.bias", [s.embedDim]);
  return shapes;
}

/** Splits rows of q, k and v that lie one after the other. */
function splitRows(all: Float32Array, s: ProjectionSizes, width: number): Float32Array[] {
  const { q, k } = rowsOf(s);
  const [endQ, endK] = [q * width, (q + k) * width];
  return [all.subarray(0, endQ), all.subarray(endQ, endK), all.subarray(endK)];
}

/** The weights of `grouped_query` from those names. */
export function fromStateDict(
  s: ProjectionSizes,
  state: ReadonlyMap<string, Float32Array>,
): Weight[] {
  const get = (name: string): Float32Array => state.get(name) as Float32Array;
  const { numHeads, numKvHeads, headDim, headDimV, embedDim } = s;
  const [q, k, v] = state.has("in_proj_weight")
    ? splitRows(get("in_proj_weight"), s, embedDim)
    : [get("q_proj_weight"), get("k_proj_weight"), get("v_proj_weight")];
  const weights: Weight[] = [
    ["wQ", q as Float32Array, [numHeads, headDim, embedDim]],
    ["wK", k as Float32Array, [numKvHeads, headDim, s.kdim]],
    ["wV", v as Float32Array, [numKvHeads, headDimV, s.vdim]],
    ["wO", get("out_proj.weight"), [embedDim, numHeads, headDimV]],
  ];
  if (s.bias) {
    const [bQ, bK, bV] = splitRows(get("in_proj_bias"), s, 1);
    weights.push(["bQ", bQ as Float32Array, [numHeads, headDim]]);
    weights.push(["bK", bK as Float32Array, [numKvHeads, headDim]]);
    weights.push(["bV", bV as Float32Array, [numKvHeads, headDimV]]);
    weights.push(["bO", get("out_proj.bias"), [embedDim]]);
  }
  if (s.addBiasKv) {
    weights.push(["biasK", get("bias_k"), [numKvHeads, headDim]]);
    weights.push(["biasV", get("bias_v"), [numKvHeads, headDimV]]);
  }
  return weights;
}

/** The shapes of self-attention's weights by the names of `transformer_block`. */
export function selfShapes(
  s: HeadSizes & { readonly bias: boolean },
): [string, readonly number[]][] {
  const { embedDim, numHeads, numKvHeads, headDim, headDimV } = s;
  const shapes: [string, readonly number[]][] = [
    ["wQ", [numHeads, headDim, embedDim]],
    ["wK", [numKvHeads, headDim, embedDim]],
    ["wV", [numKvHeads, headDimV, embedDim]],
    ["wO", [embedDim, numHeads, headDimV]],
  ];
  if (!s.bias) return shapes;
  return [
    ...shapes,
    ["bQ", [numHeads, headDim]],
    ["bK", [numKvHeads, headDim]],
    ["bV", [numKvHeads, headDimV]],
    ["bO", [embedDim]],
  ];
}

/** Every name that self-attention's weights may have. */
export const SELF_WEIGHTS: readonly string[] = ["wQ", "wK", "wV", "wO", "bQ", "bK", "bV", "bO"];
