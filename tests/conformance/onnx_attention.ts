import type { AttentionOptions, Heed, ScoreStage } from "heed";
import type { Case, OnnxTensor } from "./onnx_files.js";

/** A float32 tensor on its way into heed. */
interface Floats {
  data: Float32Array;
  shape: number[];
}

/** What the Attention operator computes, by the names of its outputs in the specification. */
export type Outputs = Partial<
  Record<OutputSlot, { data: ArrayLike<number>; shape: readonly number[] }>
>;
export type OutputSlot = "Y" | "present_key" | "present_value" | "qk_matmul_output";

export const OUTPUT_SLOTS: readonly OutputSlot[] = [
  "Y",
  "present_key",
  "present_value",
  "qk_matmul_output",
];
const INPUT_SLOTS = [
  "Q",
  "K",
  "V",
  "attn_mask",
  "past_key",
  "past_value",
  "nonpad_kv_seqlen",
] as const;
type Inputs = Partial<Record<(typeof INPUT_SLOTS)[number], OnnxTensor>>;

const size = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
const floats = (t: OnnxTensor): Floats => ({ data: Float32Array.from(t.data), shape: t.shape });

/** Input files belong to the non-empty names of the node, in order. */
export function assignInputs(testCase: Case, tensors: OnnxTensor[]): Inputs {
  const names = testCase.nodes[0]?.inputs ?? [];
  const inputs: Inputs = {};
  let next = 0;
  names.forEach((name, slot) => {
    const key = INPUT_SLOTS[slot];
    const tensor = name === "" ? undefined : tensors[next++];
    if (key !== undefined && tensor !== undefined) inputs[key] = tensor;
  });
  return inputs;
}

/** [batch, len, heads * dim] as [batch, heads, len, dim]; rank 4 as it is. */
function splitHeads(tensor: Floats, heads: number): Floats {
  if (tensor.shape.length === 4) return tensor;
  const [batch = 0, len = 0, width = 0] = tensor.shape;
  return moveAxes(tensor.data, [batch, len, heads, width / heads]);
}

/** Swaps the two middle extents. */
function moveAxes(data: ArrayLike<number>, [a = 0, b = 0, c = 0, d = 0]: number[]): Floats {
  const moved = new Float32Array(a * b * c * d);
  for (let at = 0, i = 0; i < a; i++)
    for (let j = 0; j < b; j++)
      for (let k = 0; k < c; k++)
        for (let l = 0; l < d; l++) moved[((i * c + k) * b + j) * d + l] = data[at++] as number;
  return { data: moved, shape: [a, c, b, d] };
}

/** Past keys (or values) followed by the new ones. */
function concatenate(past: Floats | undefined, now: Floats): Floats {
  if (past === undefined) return now;
  const [batch = 0, heads = 0, pastLen = 0, dim = 0] = past.shape;
  const len = now.shape[2] ?? 0;
  const data = new Float32Array(batch * heads * (pastLen + len) * dim);
  for (let row = 0; row < batch * heads; row++) {
    const at = row * (pastLen + len) * dim;
    data.set(past.data.subarray(row * pastLen * dim, (row + 1) * pastLen * dim), at);
    data.set(now.data.subarray(row * len * dim, (row + 1) * len * dim), at + pastLen * dim);
  }
  return { data, shape: [batch, heads, pastLen + len, dim] };
}

/** The mask as four extents by right alignment; keys beyond its last column are not kept. */
function alignMask(
  mask: OnnxTensor,
  kvLen: number,
  fill: number,
): { data: number[]; shape: number[] } {
  const shape = [...Array<number>(4 - mask.shape.length).fill(1), ...mask.shape];
  const columns = shape[3] ?? 0;
  if (columns === kvLen || columns === 1) return { data: mask.data, shape };
  const rows = size(shape) / columns;
  const data = Array.from({ length: rows * kvLen }, (_, i) => {
    const column = i % kvLen;
    return column < columns
      ? (mask.data[Math.floor(i / kvLen) * columns + column] as number)
      : fill;
  });
  return { data, shape: [...shape.slice(0, 3), kvLen] };
}

function maskOptions(mask: OnnxTensor | undefined, kvLen: number): AttentionOptions {
  if (mask === undefined) return {};
  if (mask.dtype === "bool") {
    const { data, shape } = alignMask(mask, kvLen, 0);
    return { keep: { data: Uint8Array.from(data), shape } };
  }
  const { data, shape } = alignMask(mask, kvLen, -Infinity);
  return { bias: { data: Float32Array.from(data), shape } };
}

/** ONNX counts positions from the past, or from the end of the keys that are not padding. */
function positionOptions(
  inputs: Inputs,
  qLen: number,
  attrs: Record<string, number>,
): AttentionOptions {
  const lengths = inputs.nonpad_kv_seqlen?.data;
  const past = inputs.past_key?.shape[2] ?? 0;
  const { is_causal = 0, left_window_size: left = -1, right_window_size: right = -1 } = attrs;
  const window = {
    ...(left >= 0 && { left }),
    ...(right >= 0 && { right }),
  };
  return {
    causal: is_causal === 1,
    queryOffset: lengths === undefined ? past : lengths.map((length) => length - qLen),
    ...(lengths !== undefined && { keyLengths: Int32Array.from(lengths) }),
    ...((left >= 0 || right >= 0) && { window }),
  };
}

const STAGES: readonly ScoreStage[] = ["raw", "capped", "biased"];

/** Runs one case of the Attention operator through the package. */
export function runCase(heed: Heed, testCase: Case, tensors: OnnxTensor[]): Outputs {
  const node = testCase.nodes[0];
  const inputs = assignInputs(testCase, tensors);
  const { Q, K, V } = inputs;
  if (node === undefined || Q === undefined || K === undefined || V === undefined) {
    throw new Error(`${testCase.case}: Q, K and V are required`);
  }
  const { attrs } = node;
  const { q_num_heads = 1, kv_num_heads = 1, scale, softcap, qk_matmul_output_mode = 0 } = attrs;
  const past = (tensor: OnnxTensor | undefined) => (tensor ? floats(tensor) : undefined);
  const q = splitHeads(floats(Q), q_num_heads);
  const k = concatenate(past(inputs.past_key), splitHeads(floats(K), kv_num_heads));
  const v = concatenate(past(inputs.past_value), splitHeads(floats(V), kv_num_heads));
  const wantsScores = node.outputs[3] !== undefined && node.outputs[3] !== "";
  const stage = wantsScores ? STAGES[qk_matmul_output_mode] : undefined;
  const result = heed.attention(q, k, v, {
    scale,
    softcap: softcap === 0 ? undefined : softcap,
    ...maskOptions(inputs.attn_mask, k.shape[2] ?? 0),
    ...positionOptions(inputs, q.shape[2] ?? 0, attrs),
    returnScores: stage,
    returnWeights: wantsScores && stage === undefined,
  });
  const { output } = result;
  const scores = result.scores ?? result.weights;
  const merged = (): Floats => {
    const moved = moveAxes(output.data, [...output.shape]);
    const [batch = 0, len = 0, heads = 0, dim = 0] = moved.shape;
    return { data: moved.data, shape: [batch, len, heads * dim] };
  };
  return {
    Y: Q.shape.length === 3 ? merged() : output,
    present_key: k,
    present_value: v,
    ...(scores && { qk_matmul_output: scores }),
  };
}
