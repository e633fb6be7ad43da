import type { Heed } from "heed";
import type { Outputs } from "./onnx_attention.js";
import type { Case, OnnxTensor } from "./onnx_files.js";

/** Runs one case of the RotaryEmbedding operator through the package. */
export function runRotary(heed: Heed, testCase: Case, tensors: OnnxTensor[]): Outputs {
  const [input, cos, sin, positionIds] = tensors;
  if (input === undefined || cos === undefined || sin === undefined) {
    throw new Error(`${testCase.case}: input, cos_cache and sin_cache are required`);
  }
  const {
    interleaved = 0,
    num_heads: heads = 0,
    rotary_embedding_dim = 0,
  } = testCase.nodes[0]?.attrs ?? {};
  const floats = ({ data, shape }: OnnxTensor) => ({ data: Float32Array.from(data), shape });
  const [batch = 0, len = 0, width = 0] = input.shape;
  // [batch, len, heads * dim] is [batch, len, heads, dim] without a copy.
  const flat = input.shape.length === 3;
  const x = { ...floats(input), ...(flat && { shape: [batch, len, heads, width / heads] }) };
  const output = heed.rope(x, {
    pairing: interleaved === 1 ? "interleaved" : "half",
    rotaryDim: rotary_embedding_dim === 0 ? undefined : rotary_embedding_dim,
    cos: floats(cos),
    sin: floats(sin),
    positions: positionIds && {
      data: Int32Array.from(positionIds.data),
      shape: positionIds.shape,
    },
    layout: flat ? "blhd" : "bhld",
  });
  return { Y: { data: output.data, shape: input.shape } };
}
