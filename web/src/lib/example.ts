// An example of any mechanism, drawn from what the registry says of its inputs: nothing here knows a
// mechanism by name, so a new row of the list has a live picture at once.
import type { Heed, Mechanism, MechanismInput, Parameter } from "heed";
import { hashText, normalSource, uniformSource } from "./random.js";

export interface ExampleTensor {
  data: Float32Array | Int32Array | Uint8Array;
  shape: number[];
}

export type ExampleParams = Record<string, boolean | number | string>;

export interface Example {
  inputs: Record<string, ExampleTensor>;
  params: ExampleParams;
}

/** Extents by the symbols of the input table; others are SMALL. */
const EXTENTS: Readonly<Record<string, number>> = {
  batch: 1,
  num_heads: 2,
  num_kv_heads: 2,
  q_len: 16,
  kv_len: 16,
  len: 16,
  max_len: 16,
  num_edges: 48,
  embed_dim: 16,
  kdim: 16,
  vdim: 16,
  out_dim: 16,
  ff_dim: 32,
  vocabulary: 32,
  // Both kinds of graph attention score a pair with one or two vectors of head_dim.
  score_dim: 16,
  concat_dim: 16,
  num_distances: 9,
  num_biases: 9,
  num_blocks: 2,
  rope_dim: 4,
};
/** Where one mechanism counts otherwise than the others: distances -m to m, or two times k. */
const OWN_EXTENTS: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  disentangled: { num_distances: 8 },
};
const SMALL = 8;

export const EXAMPLE_SEED = 7;

function extentOf(symbol: string, id = ""): number {
  const name = symbol.replace("?", "");
  const own = OWN_EXTENTS[id]?.[name];
  if (own !== undefined) return own;
  if (/^\d+$/.test(name)) return Number(name);
  return EXTENTS[name] ?? SMALL;
}

function shapeOf(input: MechanismInput, id: string): number[] {
  return (input.shapes[0] ?? []).map((symbol) => extentOf(symbol, id));
}

function drawInts(input: MechanismInput, count: number, seed: number): Int32Array {
  const uniform = uniformSource(seed);
  const below = (limit: number) => Math.floor(uniform() * limit);
  if (input.draw === "edges") return Int32Array.from({ length: count }, () => below(16));
  const [, symbol] = input.draw.split(":");
  if (symbol !== undefined) {
    // Positions count up; tokens are any.
    const limit = extentOf(symbol);
    return Int32Array.from({ length: count }, (_, i) =>
      symbol === "len" ? i % limit : below(limit),
    );
  }
  return new Int32Array(count).fill(extentOf("kv_len"));
}

function drawFloats(input: MechanismInput, shape: readonly number[], seed: number): Float32Array {
  const normal = normalSource(seed);
  const count = shape.reduce((product, extent) => product * extent, 1);
  const scale = input.draw === "weight" ? 1 / Math.sqrt(shape.at(-1) ?? 1) : 1;
  return Float32Array.from({ length: count }, (_, i) => {
    switch (input.draw) {
      case "positive":
        return Math.exp(0.3 * normal());
      case "slopes":
        return 2 ** -(i + 1);
      case "log_gate":
        return -0.2 * Math.abs(normal());
      case "zero":
        return 0;
      default:
        return scale * normal();
    }
  });
}

/** An input of its row's shape; the same seed gives the same numbers on every machine. */
export function drawInput(input: MechanismInput, seed = EXAMPLE_SEED, id = ""): ExampleTensor {
  const shape = shapeOf(input, id);
  const count = shape.reduce((product, extent) => product * extent, 1);
  const own = hashText(`${seed}:${input.name}`);
  if (input.kind === "int") return { data: drawInts(input, count, own), shape };
  if (input.kind === "keep") {
    const uniform = uniformSource(own);
    return { data: Uint8Array.from({ length: count }, () => (uniform() < 0.7 ? 1 : 0)), shape };
  }
  return { data: drawFloats(input, shape, own), shape };
}

const EITHER_OF: Readonly<Record<string, readonly string[]>> = {
  // Inputs that their row marks as optional because one form or another needs them.
  synthesizer: ["q", "syntheticKeys"],
  induced_set: ["inducing"],
};

/** What a call needs at least: required inputs, and parameters that have no default. */
export function drawExample(
  mechanism: Mechanism,
  parameters: ReadonlyMap<string, Parameter>,
  seed = EXAMPLE_SEED,
): Example {
  const wanted = EITHER_OF[mechanism.id] ?? [];
  const inputs: Record<string, ExampleTensor> = {};
  for (const input of mechanism.inputs) {
    if (input.optional && !wanted.includes(input.name)) continue;
    inputs[input.name] = drawInput(input, seed, mechanism.id);
  }
  const params: ExampleParams = {};
  for (const name of mechanism.params) {
    const parameter = parameters.get(name);
    const [first] = parameter?.range.split("|") ?? [];
    if (parameter?.type === "choice" && first !== undefined) params[name] = first;
  }
  return { inputs, params };
}

/** A matrix to look at: weights of head 0 where there are any, else the output. */
export interface Picture {
  title: "Weights" | "Output";
  rows: number;
  columns: number;
  values: Float32Array;
}

export interface LiveResult {
  picture: Picture;
  outputShape: readonly number[];
  /** Largest difference of any result from the float64 oracle, over max(1, |value|). */
  error: Promise<number>;
  milliseconds: number;
}

interface Result {
  readonly data: ArrayLike<number>;
  readonly shape: readonly number[];
}

const pictureOf = (title: Picture["title"], { data, shape }: Result): Picture => {
  const columns = shape.at(-1) ?? 1;
  const rows = Math.max(1, shape.at(-2) ?? 1);
  const values = Float32Array.from({ length: rows * columns }, (_, i) => data[i] ?? 0);
  return { title, rows, columns, values };
};

async function compare(
  heed: Heed,
  id: string,
  example: Example,
  params: ExampleParams,
  results: Record<string, Result>,
): Promise<number> {
  const truth = (await heed.reference(id, example.inputs, params)) as unknown as Record<
    string,
    Result
  >;
  let largest = 0;
  for (const [name, { data }] of Object.entries(results)) {
    const wanted = truth[name]?.data ?? [];
    if (wanted.length !== data.length) return Number.POSITIVE_INFINITY;
    for (let i = 0; i < data.length; i++) {
      const [a, b] = [data[i] ?? Number.NaN, wanted[i] ?? Number.NaN];
      if (Object.is(a, b) || a === b) continue;
      const error = Math.abs(a - b) / Math.max(1, Math.abs(b));
      if (!(error <= largest)) largest = Number.isNaN(error) ? Number.POSITIVE_INFINITY : error;
    }
  }
  return largest;
}

/** Runs the example with these parameters. Throws HeedError. */
export function runExample(
  heed: Heed,
  mechanism: Mechanism,
  example: Example,
  changes: ExampleParams,
): LiveResult {
  const asksWeights = mechanism.params.includes("returnWeights");
  const params: ExampleParams = {
    ...example.params,
    ...changes,
    ...(asksWeights && { returnWeights: true }),
  };
  const start = performance.now();
  const results = heed.run(mechanism.id, example.inputs, params) as unknown as Record<
    string,
    Result
  >;
  const milliseconds = performance.now() - start;
  const { output, weights } = results;
  if (output === undefined) throw new Error(`${mechanism.id} returned no output`);
  return {
    picture: weights ? pictureOf("Weights", weights) : pictureOf("Output", output),
    outputShape: output.shape,
    error: compare(heed, mechanism.id, example, params, results),
    milliseconds,
  };
}
