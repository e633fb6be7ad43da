import type { Heed } from "heed";
import type { Outputs } from "./onnx_attention.js";
import type { Case, OnnxTensor } from "./onnx_files.js";

/** A sub-graph of a FlexAttention node as the manifest writes it. */
interface Graph {
  nodes: { op: string; inputs: string[]; outputs: string[] }[];
  inputs: string[];
  outputs: string[];
  initializers: { name: string; dims: number[]; data: (number | string)[] }[];
}

const BINARY: Record<string, string> = {
  Add: "+",
  Sub: "-",
  Mul: "*",
  Div: "/",
  GreaterOrEqual: ">=",
  Greater: ">",
  LessOrEqual: "<=",
  Less: "<",
};

const toNumber = (value: number | string): string =>
  String(value)
    .replace(/^-inf.*$/i, "-inf")
    .replace(/^inf.*$/i, "inf");

/**
 * Translates a sub-graph into heed's expression language. The published graphs make the indices of
 * queries and keys from the shape of their input: Shape, Gather of extent 2 or 3, Range, Reshape.
 */
export function toExpression(graph: Graph, value: string): string {
  const texts = new Map(graph.inputs.map((name) => [name, value]));
  for (const { name, data } of graph.initializers) texts.set(name, toNumber(data[0] ?? 0));
  for (const { op, inputs, outputs } of graph.nodes) {
    const [a = "", b = "", c = ""] = inputs.map((name) => texts.get(name) ?? "");
    const operator = BINARY[op];
    let text: string;
    if (operator !== undefined) text = `(${a} ${operator} ${b})`;
    else if (op === "Tanh") text = `tanh(${a})`;
    else if (op === "Where") text = `(${a} ? ${b} : ${c})`;
    else if (op === "Cast" || op === "Reshape") text = a;
    else if (op === "Shape") text = "shape";
    else if (op === "Gather" && a === "shape" && b === "2") text = "qLength";
    else if (op === "Gather" && a === "shape" && b === "3") text = "kvLength";
    else if (op === "Range" && b === "qLength") text = "qIndex";
    else if (op === "Range" && b === "kvLength") text = "kvIndex";
    else throw new Error(`operator ${op} of ${a}, ${b} has no translation`);
    for (const output of outputs) texts.set(output, text);
  }
  return texts.get(graph.outputs[0] ?? "") ?? "";
}

const asGraph = (attribute: unknown): Graph | undefined =>
  (attribute as { graph?: Graph } | undefined)?.graph;

/** Runs one case of the FlexAttention operator; float64 is computed in float32. */
export function runFlex(heed: Heed, testCase: Case, tensors: OnnxTensor[]): Outputs {
  const attrs: Record<string, unknown> = testCase.nodes[0]?.attrs ?? {};
  const [q, k, v] = tensors.map(({ data, shape }) => ({ data: Float32Array.from(data), shape }));
  if (q === undefined || k === undefined || v === undefined) throw new Error("Q, K, V are missing");
  const scoreMod = asGraph(attrs.score_mod);
  const probMod = asGraph(attrs.prob_mod);
  const { output } = heed.attention(q, k, v, {
    scale: attrs.scale as number | undefined,
    scoreMod: scoreMod && toExpression(scoreMod, "score"),
    probMod: probMod && toExpression(probMod, "prob"),
  });
  return { Y: output };
}
