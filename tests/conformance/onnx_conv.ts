import type { Heed } from "heed";
import type { Outputs } from "./onnx_attention.js";
import type { Case, OnnxTensor } from "./onnx_files.js";

/** Outputs of the operator, in their order. */
export const CONV_SLOTS = ["output", "present_state"] as const;

/** The last two extents the other way round: [batch, channels, len] is heed's [batch, len, channels]. */
function swapped(data: ArrayLike<number>, [batch = 0, rows = 0, cols = 0]: readonly number[]) {
  const to = new Float32Array(data.length);
  for (let b = 0; b < batch; b++)
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < cols; c++)
        to[(b * cols + c) * rows + r] = data[(b * rows + r) * cols + c] ?? 0;
  return { data: to, shape: [batch, cols, rows] };
}

/** Runs one case of the CausalConvWithState operator through the package. */
export function runConv(heed: Heed, testCase: Case, tensors: OnnxTensor[]): Outputs {
  const node = testCase.nodes[0];
  let next = 0;
  const [input, weight, bias, past] = Array.from({ length: 4 }, (_, slot) =>
    node?.inputs[slot] ? tensors[next++] : undefined,
  );
  if (input === undefined || weight === undefined) {
    throw new Error(`${testCase.case}: input and weight are required`);
  }
  const [channels = 0, , width = 0] = weight.shape;
  const activation = String(node?.attrs.activation ?? "none");
  const results = heed.run(
    "causal_conv",
    {
      signal: swapped(input.data, input.shape),
      convWeight: { data: Float32Array.from(weight.data), shape: [channels, width] },
      ...(bias && { convBias: { data: Float32Array.from(bias.data), shape: [channels] } }),
      ...(past && { convState: swapped(past.data, past.shape) }),
    },
    { convActivation: activation === "swish" ? "silu" : activation, returnState: true },
  ) as Record<string, { data: Float32Array; shape: readonly number[] }>;
  const back = (name: string) => swapped(results[name]?.data ?? [], results[name]?.shape ?? []);
  return { output: back("output"), present_state: back("state") };
}
