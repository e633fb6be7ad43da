// A call of any mechanism with tensors of the sizes that the benchmark uses (examples.inc).
import { costExamples } from "virtual:cost_examples";
import type { Mechanism, MechanismInput, Parameter } from "heed";
import type { ExampleParams, ExampleTensor, ExampleValue } from "./example.js";

export const REALISTIC_HEAD_DIM = 64;

export const product = (shape: readonly number[]): number =>
  shape.reduce((count, extent) => count * extent, 1);

type Sizes = (symbol: string) => number;

/** Products of numbers and symbols; "/2" divides and rounds up. */
function evaluate(text: string, sizes: Sizes): number {
  return text
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
  head_dim: REALISTIC_HEAD_DIM,
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
    const text = own[name] && own[name] !== name ? own[name] : costExamples.extents[name];
    const known = chosen[name];
    if (known !== undefined && !(own[name] && own[name] !== name)) return known;
    if (text === undefined) throw new Error(`examples.inc has no extent ${name}`);
    return evaluate(text, sizes);
  };
  return sizes;
}

/** Which keys exist, where edges lead: indices in range, in order. */
function indices(input: MechanismInput, count: number, length: number, sizes: Sizes) {
  const [, symbol] = input.draw.split(":");
  const limit = symbol ? sizes(symbol) : length;
  if (input.draw === "lengths") return new Int32Array(count).fill(length);
  return Int32Array.from({ length: count }, (_, i) => (input.draw === "zero" ? 0 : i % limit));
}

/** A number, the extent of a symbol, its square root, or a word. */
function readParam(text: string, sizes: Sizes): ExampleValue {
  if (text.startsWith("sqrt:")) return Math.sqrt(sizes(text.slice(5)));
  const value = Number(text);
  if (!Number.isNaN(value)) return value;
  return text in CHOSEN || text in costExamples.extents ? sizes(text) : text;
}

/** A call of one head at a length; `floats` gives the numbers of an input, `learned` says which
 *  optional tensors belong to it. */
export function realisticCall(
  mechanism: Mechanism,
  parameters: ReadonlyMap<string, Parameter>,
  length: number,
  floats: (input: MechanismInput, shape: readonly number[]) => Float32Array,
  learned: "all" | "required" = "all",
): { inputs: Record<string, ExampleTensor>; params: ExampleParams } {
  const sizes = sizesOf(mechanism.id, length);
  const row = costExamples.rows[mechanism.id];
  const inputs: Record<string, ExampleTensor> = {};
  for (const input of mechanism.inputs) {
    const belongs = learned === "all" && row?.inputs.includes(input.name);
    if (input.optional && !belongs) continue;
    const shape = (input.shapes[0] ?? []).map(sizes);
    const count = product(shape);
    const data =
      input.kind === "keep"
        ? new Uint8Array(count).fill(1)
        : input.kind === "int"
          ? indices(input, count, length, sizes)
          : floats(input, shape);
    inputs[input.name] = { data, shape };
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
