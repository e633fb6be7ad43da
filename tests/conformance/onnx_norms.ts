import type { Heed } from "heed";
import type { Case, OnnxTensor } from "./onnx_files.js";

/** Results by the names of the operator's outputs in the specification. */
type Outputs = Record<string, { data: ArrayLike<number>; shape: readonly number[] }>;

export const NORM_SLOTS: readonly string[] = ["Y", "Mean", "InvStdDev"];

/** Softmax, LogSoftmax, LayerNormalization and RMSNormalization by heed's functions of rows. */
export function runNorm(heed: Heed, testCase: Case, tensors: OnnxTensor[]): Outputs {
  const { op = "", attrs = {} } = testCase.nodes[0] ?? {};
  const [x, weight, bias] = tensors.map(({ data, shape }) => ({
    data: Float32Array.from(data),
    shape,
  }));
  if (x === undefined) throw new Error("X is missing");
  const { axis, epsilon } = attrs;
  switch (op) {
    case "Softmax":
      return { Y: heed.softmax(x, { axis }) };
    case "LogSoftmax":
      return { Y: heed.logSoftmax(x, { axis }) };
    case "RMSNormalization":
      return { Y: heed.rmsNorm(x, { weight, axis, epsilon }) };
    case "LayerNormalization": {
      const options = { weight, bias, axis, epsilon, returnStatistics: true } as const;
      const { output, mean, inverseDeviation } = heed.layerNorm(x, options);
      return { Y: output, Mean: mean, InvStdDev: inverseDeviation };
    }
    default:
      throw new Error(`${op} is not a function of rows`);
  }
}
