// The cost of a realistic call against its length: heed.estimateCost on tensors of the sizes that the
// benchmark uses (examples.inc). Nothing is run.

import { costExamples } from "virtual:cost_examples";
import type { Heed, Mechanism, MechanismInput, Parameter } from "heed";
import type { ExampleParams, ExampleTensor, ExampleValue } from "./example.js";

export const COST_LENGTHS: readonly number[] = [512, 1024, 2048, 4096, 8192];
export const COST_HEAD_DIM = 64;

export interface CostPoint {
  length: number;
  flops: number;
  scratchBytes: number;
}

type Sizes = (symbol: string) => number;

/** Products of numbers and symbols; "/2" divides and rounds up. */
function evaluate(product: string, sizes: Sizes): number {
  return product
    .split(" ")
    .reduce(
      (value, word) =>
        word.startsWith("/") ? Math.ceil(value / Number(word.slice(1))) : value * sizes(word),
      1,
    );
}

/** Extents that whoever draws an example chooses, beside the lengths. */
const CHOSEN: Readonly<Record<string, number>> = {
  batch: 1,
  num_heads: 1,
  num_kv_heads: 1,
  head_dim: COST_HEAD_DIM,
};

/** Mechanisms whose queries are learned: their number stays while the length grows. */
const LEARNED_QUERIES: ReadonlySet<string> = new Set(["attention_pooling", "perceiver"]);
const NUM_LEARNED = 64;

function sizesOf(id: string, length: number): Sizes {
  const queries = LEARNED_QUERIES.has(id) ? NUM_LEARNED : length;
  const chosen: Readonly<Record<string, number>> = { ...CHOSEN, q_len: queries, kv_len: length };
  const own = costExamples.rows[id]?.extents ?? {};
  const sizes: Sizes = (symbol) => {
    const name = symbol.replace("?", "");
    if (/^\d+$/.test(name)) return Number(name);
    const product = own[name] && own[name] !== name ? own[name] : costExamples.extents[name];
    const known = chosen[name];
    if (known !== undefined && !(own[name] && own[name] !== name)) return known;
    if (product === undefined) throw new Error(`examples.inc has no extent ${name}`);
    return evaluate(product, sizes);
  };
  return sizes;
}

/** Only what is checked about the values matters: nothing is computed with them. */
function fill(input: MechanismInput, count: number, length: number, sizes: Sizes) {
  if (input.kind === "keep") return new Uint8Array(count).fill(1);
  if (input.kind === "int") {
    const [, symbol] = input.draw.split(":");
    const limit = symbol ? sizes(symbol) : length;
    if (input.draw === "lengths") return new Int32Array(count).fill(length);
    return Int32Array.from({ length: count }, (_, i) => (input.draw === "zero" ? 0 : i % limit));
  }
  return new Float32Array(count).fill(input.draw === "log_gate" ? -0.1 : 0.5);
}

/** A number, the extent of a symbol, its square root, or a word. */
function readParam(text: string, sizes: Sizes): ExampleValue {
  if (text.startsWith("sqrt:")) return Math.sqrt(sizes(text.slice(5)));
  const value = Number(text);
  if (!Number.isNaN(value)) return value;
  return text in CHOSEN || text in costExamples.extents ? sizes(text) : text;
}

function costCall(
  mechanism: Mechanism,
  parameters: ReadonlyMap<string, Parameter>,
  length: number,
): { inputs: Record<string, ExampleTensor>; params: ExampleParams } {
  const sizes = sizesOf(mechanism.id, length);
  const row = costExamples.rows[mechanism.id];
  const inputs: Record<string, ExampleTensor> = {};
  for (const input of mechanism.inputs) {
    if (input.optional && !row?.inputs.includes(input.name)) continue;
    const shape = (input.shapes[0] ?? []).map(sizes);
    const count = shape.reduce((product, extent) => product * extent, 1);
    inputs[input.name] = { data: fill(input, count, length, sizes), shape };
  }
  const params: ExampleParams = {};
  for (const name of mechanism.params) {
    const parameter = parameters.get(name);
    const [first] = parameter?.range.split("|") ?? [];
    if (parameter?.type === "choice" && first) params[name] = first;
  }
  for (const [name, text] of Object.entries(row?.params ?? {})) {
    params[name] = readParam(text, sizes);
  }
  return { inputs, params };
}

/** Undefined where the mechanism's work has not been counted. Throws HeedError. */
export function costAt(heed: Heed, mechanism: Mechanism, length: number): CostPoint | undefined {
  const parameters = new Map(heed.parameters.map((row): [string, Parameter] => [row.name, row]));
  const { inputs, params } = costCall(mechanism, parameters, length);
  const { flops, scratchBytes } = heed.estimateCost(mechanism.id, inputs, params);
  if (flops === undefined || scratchBytes === undefined) return undefined;
  return { length, flops, scratchBytes };
}
