// An example of any mechanism, drawn from what the registry says of its inputs: a new row of the list
// has a live picture at once. The tables below name the few whose optional inputs or sizes a picture
// needs.

import type { Heed, Mechanism, MechanismInput, Parameter } from "heed";
import { readParams } from "./controls.js";
import { drawSequence, SUMS_VALUES, unitValues } from "./example_tokens.js";
import { t } from "./messages.js";
import { hashText, normalSource, uniformSource } from "./random.js";

export interface ExampleTensor {
  data: Float32Array | Int32Array | Uint8Array;
  shape: number[];
}

export type ExampleValue = boolean | number | string | readonly number[];
export type ExampleParams = Record<string, ExampleValue>;

export interface Example {
  inputs: Record<string, ExampleTensor>;
  params: ExampleParams;
  /** The rows of the mechanism's parameters, and others. */
  parameters: ReadonlyMap<string, Parameter>;
  /** What the inputs are, for the caption. */
  note: string;
  /** The values are unit vectors, and the output is the weights of each. */
  sumsValues?: boolean;
}

/** Extents by the symbols of the input table; others are SMALL. */
const EXTENTS: Readonly<Record<string, number>> = {
  batch: 1,
  num_heads: 2,
  num_kv_heads: 2,
  q_len: 16,
  kv_len: 16,
  len: 16,
  max_len: 24,
  num_edges: 48,
  num_global: 1,
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
  num_matrices: 5,
  rope_dim: 4,
  // Blocks of keyBlock tokens, and clusters, as in SMALL_PATTERN.
  token_blocks: 8,
  num_clusters: 4,
  conv_width: 4,
  conv_tail: 3,
  num_features: 16,
  levels: 8,
  mini_batch: 16,
  kernel_len: 5,
  compression: 4,
};
/** Where one mechanism counts otherwise than the others: distances -m to m, or two times k; one head of keys. */
const OWN_EXTENTS: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  disentangled: { num_distances: 8 },
  multi_query: { num_kv_heads: 1 },
};
/** Where shapes, inputs or numbers follow a word: parameter, word, what differs then. */
interface Follows {
  extents?: Readonly<Record<string, number>>;
  without?: readonly string[];
  params?: ExampleParams;
}
const STRETCHED: Follows = { params: { scalingFactor: 4 } };
const TRAINED: Follows = { params: { scalingFactor: 4, originalLen: 8 } };
const FOLLOWS: Readonly<Record<string, Readonly<Record<string, Follows>>>> = {
  graphScore: { gatv2: { extents: { score_dim: 8 } } },
  setBlock: {
    pma: { extents: { num_blocks: 1 } },
    sab: { extents: { num_blocks: 1 }, without: ["inducing"] },
  },
  setResidual: { projected: { extents: { num_matrices: 4 } } },
  scaling: {
    linear: STRETCHED,
    ntk: STRETCHED,
    dynamic_ntk: TRAINED,
    yarn: { params: { scalingFactor: 4, originalLen: 64 } },
    llama3: TRAINED,
  },
};

const SMALL = 8;

export const EXAMPLE_SEED = 7;

type Extents = Readonly<Record<string, number>>;

function extentOf(symbol: string, extents: Extents = {}): number {
  const name = symbol.replace("?", "");
  const own = extents[name];
  if (own !== undefined) return own;
  if (/^\d+$/.test(name)) return Number(name);
  return EXTENTS[name] ?? SMALL;
}

function shapeOf(input: MechanismInput, extents: Extents): number[] {
  return (input.shapes[0] ?? []).map((symbol) => extentOf(symbol, extents));
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

/** Numbers of the kind that an input wants, the same for a seed on every machine. */
export function drawFloats(
  input: MechanismInput,
  shape: readonly number[],
  seed: number,
): Float32Array {
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
      case "fraction":
        return 1 / (1 + Math.exp(-normal()));
      case "zero":
        return 0;
      default:
        return scale * normal();
    }
  });
}

/** An input of its row's shape; the same seed gives the same numbers on every machine. */
export function drawInput(
  input: MechanismInput,
  seed = EXAMPLE_SEED,
  extents: Extents = {},
): ExampleTensor {
  const shape = shapeOf(input, extents);
  const count = shape.reduce((product, extent) => product * extent, 1);
  const own = hashText(`${seed}:${input.name}`);
  if (input.kind === "int") return { data: drawInts(input, count, own), shape };
  if (input.kind === "keep") {
    const uniform = uniformSource(own);
    return { data: Uint8Array.from({ length: count }, () => (uniform() < 0.7 ? 1 : 0)), shape };
  }
  const isSequence = (input.name === "q" || input.name === "k") && shape.length > 1;
  const data = isSequence ? drawSequence(input.name, shape, seed) : drawFloats(input, shape, own);
  return { data, shape };
}

const EITHER_OF: Readonly<Record<string, readonly string[]>> = {
  // Inputs that their row marks as optional because one form or another needs them.
  synthesizer: ["q", "syntheticKeys"],
  induced_set: ["inducing"],
  longformer: ["globalTokens"],
  attention_free: ["bias"],
  multi_head_latent: ["wDq", "normQWeight", "normKvWeight"],
  causal_conv: ["convBias"],
  log_linear: ["logDecay", "beta"],
  ttt_linear: ["beta"],
  mamba2: ["logDecay", "beta", "skip"],
  delta_rule: ["beta"],
  gated_delta_rule: ["logDecay", "beta"],
  kimi_delta: ["beta"],
};

/** Numbers under which a pattern shows on 16 tokens; their defaults are made for thousands. */
const SMALL_PATTERN: ExampleParams = {
  reach: 2,
  stride: 4,
  summary: 1,
  grid: [4, 4],
  windowSize: 2,
  blockSize: 2,
  windowBlocks: 1,
  globalBlocks: 1,
  randomBlocks: 1,
  keyBlock: 2,
  topBlocks: 3,
  hashChunk: 4,
  hashRounds: 2,
  hashBuckets: 4,
  numClusters: 4,
  compressBlock: 2,
  compressStride: 2,
  firstBlocks: 0,
  localBlocks: 1,
  windowLen: 3,
};
const EXAMPLE_PARAMS: Readonly<Record<string, ExampleParams>> = {
  block_sparse: { pattern: "strided" },
  swin_window: { shift: 1 },
  neighborhood: { grid: 16, windowSize: 3 },
  kernel_regression: { width: 3 },
  // Its norms have an epsilon of their own.
  multi_head_latent: { epsilon: 1e-6 },
  top_k: { topK: 4 },
  indexed: { topK: 4 },
  hopfield: { steps: 3 },
  nystrom: { numLandmarks: 4 },
  streaming: { recentTokens: 4, sinkTokens: 2 },
  quest: { pageSize: 3, topPages: 2 },
  heavy_hitter: { recentTokens: 3, heavyTokens: 2 },
};

/** Inputs that show best without chance: a code alone, and how one vector turns. */
const FILLED: Readonly<Record<string, { input: string; value: number; note: string }>> = {
  sinusoidal: { input: "x", value: 0, note: t`x is 0 everywhere: the code alone` },
  learned_position: { input: "x", value: 0, note: t`x is 0 everywhere: the rows that are added` },
  rope: { input: "x", value: 1, note: t`x is 1 everywhere: the same vector at every position` },
  xpos: { input: "x", value: 1, note: t`x is 1 everywhere: the same vector at every position` },
};

/** What follows the words that are chosen. */
function followed(mechanism: Mechanism, changes: ExampleParams): Required<Follows> {
  const all: Required<Follows> = { extents: {}, without: [], params: {} };
  for (const name of mechanism.params) {
    const { extents, without, params } = FOLLOWS[name]?.[String(changes[name])] ?? {};
    all.extents = { ...all.extents, ...extents };
    all.without = [...all.without, ...(without ?? [])];
    all.params = { ...all.params, ...params };
  }
  return all;
}

const SEEDED = t`Seeded inputs: near tokens are alike, and four of them come twice`;

/**
 * What a call needs at least: required inputs, and parameters that have no default; some follow the
 * words that a visitor has chosen.
 */
export function drawExample(
  mechanism: Mechanism,
  parameters: ReadonlyMap<string, Parameter>,
  seed = EXAMPLE_SEED,
  changes: ExampleParams = {},
): Example {
  const wanted = EITHER_OF[mechanism.id] ?? [];
  const follows = followed(mechanism, changes);
  const extents = { ...OWN_EXTENTS[mechanism.id], ...follows.extents };
  const inputs: Record<string, ExampleTensor> = {};
  for (const input of mechanism.inputs) {
    if (input.optional && !wanted.includes(input.name)) continue;
    if (follows.without.includes(input.name)) continue;
    inputs[input.name] = drawInput(input, seed, extents);
  }
  const filled = FILLED[mechanism.id];
  if (filled) inputs[filled.input]?.data.fill(filled.value);
  const sumsValues = SUMS_VALUES.has(mechanism.id);
  if (sumsValues) Object.assign(inputs, unitValues(inputs));
  const params: ExampleParams = {};
  for (const name of mechanism.params) {
    const parameter = parameters.get(name);
    const [first] = parameter?.range.split("|") ?? [];
    if (parameter?.type === "choice" && first !== undefined) params[name] = first;
    const small =
      follows.params[name] ?? EXAMPLE_PARAMS[mechanism.id]?.[name] ?? SMALL_PATTERN[name];
    if (small !== undefined) params[name] = small;
  }
  const note = sumsValues ? t`Unit vectors as values show what each token takes of each` : SEEDED;
  const example = { inputs, params, parameters, note: filled?.note ?? note, sumsValues };
  return { ...example, params: readParams(mechanism, example, changes, params) };
}

/** A matrix to look at: weights where there are any, else the output. */
export interface Picture {
  title: "Weights" | "Output";
  /** What of it is seen: "head 1", "mean of the heads"; empty when it is all. */
  part: string;
  rows: number;
  columns: number;
  rowName: string;
  columnName: string;
  values: Float32Array;
  /** Cells that are not there: the weights of a graph are at its edges. Absent: none. */
  hidden?: Uint8Array;
}

export interface LiveResult {
  picture: Picture;
  outputShape: readonly number[];
  results: Readonly<Record<string, Result>>;
  milliseconds: number;
}

export interface CheckedResult extends LiveResult {
  /** Largest difference of any result from the float64 oracle, over max(1, |value|). */
  error: Promise<number>;
}

export interface Result {
  readonly data: ArrayLike<number>;
  readonly shape: readonly number[];
}

type Names = Pick<Picture, "title" | "part" | "rowName" | "columnName">;

/** The matrix of one head of the first batch entry; results without heads have one matrix. */
function matrixOfHead(names: Names, { data, shape }: Result, head: number): Picture {
  const columns = shape.at(-1) ?? 1;
  const rows = Math.max(1, shape.at(-2) ?? 1);
  const first = shape.length === 4 ? head * rows * columns : 0;
  const values = Float32Array.from({ length: rows * columns }, (_, i) => data[first + i] ?? 0);
  return { ...names, rows, columns, values };
}

/** How many heads the picture can be of. */
export function headsOf({ results }: Pick<LiveResult, "results">, example: Example): number {
  const { weights, output } = results;
  if (weights && example.inputs.edges) return weights.shape[1] ?? 1;
  const { shape = [] } = weights ?? output ?? {};
  return shape.length === 4 ? (shape[1] ?? 1) : 1;
}

const QUERIES_BY_KEYS = { title: "Weights", rowName: t`query`, columnName: t`key` } as const;

/** Weights [batch, heads, edges] of one head, as a matrix of nodes. */
function pictureOfEdges(
  weights: Result,
  edges: ExampleTensor,
  nodes: number,
  head: number,
): Picture {
  const first = (head * edges.data.length) / 2;
  const values = new Float32Array(nodes * nodes);
  const hidden = new Uint8Array(nodes * nodes).fill(1);
  for (let n = 0; 2 * n < edges.data.length; n++) {
    const [source = 0, target = 0] = [edges.data[2 * n], edges.data[2 * n + 1]];
    const cell = target * nodes + source;
    values[cell] = (values[cell] ?? 0) + (weights.data[first + n] ?? 0);
    hidden[cell] = 0;
  }
  const names = { title: "Weights", rowName: t`target`, columnName: t`source` } as const;
  return { ...names, part: t`head ${head + 1}`, rows: nodes, columns: nodes, values, hidden };
}

/** What is seen of the results. */
export function pictureOf(
  results: Readonly<Record<string, Result>>,
  example: Example,
  head = 0,
): Picture {
  const { output, weights } = results;
  const { edges, q } = example.inputs;
  if (weights && edges) return pictureOfEdges(weights, edges, q?.shape.at(-2) ?? 0, head);
  const one = t`head ${head + 1}`;
  if (weights) {
    const part = weights.shape.length === 4 ? one : t`mean of the heads`;
    return matrixOfHead({ ...QUERIES_BY_KEYS, part }, weights, head);
  }
  if (output === undefined) throw new Error("the call returned no output");
  if (example.sumsValues) {
    const picture = matrixOfHead({ ...QUERIES_BY_KEYS, part: one }, output, head);
    // What was never read is exactly 0, whatever the sign of the rest.
    return { ...picture, hidden: Uint8Array.from(picture.values, (value) => Number(value === 0)) };
  }
  const part = output.shape.length === 4 ? one : "";
  const rowName = output.shape.length === 2 ? t`sequence` : t`position`;
  return matrixOfHead({ title: "Output", part, rowName, columnName: t`dimension` }, output, head);
}

async function compare(
  heed: Heed,
  id: string,
  example: Example,
  params: ExampleParams,
  results: Readonly<Record<string, Result>>,
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

/** What the call is asked: the example's parameters, the visitor's, and weights to look at. */
function paramsOf(mechanism: Mechanism, example: Example, changes: ExampleParams): ExampleParams {
  const asksWeights = mechanism.params.includes("returnWeights");
  const given = readParams(mechanism, example, changes);
  return { ...given, ...(asksWeights && { returnWeights: true }) };
}

/** Computes the example with these parameters. Throws HeedError. */
export function computeExample(
  heed: Heed,
  mechanism: Mechanism,
  example: Example,
  changes: ExampleParams,
): LiveResult {
  const params = paramsOf(mechanism, example, changes);
  const start = performance.now();
  const results = heed.run(mechanism.id, example.inputs, params) as unknown as Record<
    string,
    Result
  >;
  const milliseconds = performance.now() - start;
  const outputShape = results.output?.shape ?? [];
  return { picture: pictureOf(results, example), outputShape, results, milliseconds };
}

/** As computeExample, and compares with the float64 oracle, whose module is loaded for it. */
export function runExample(
  heed: Heed,
  mechanism: Mechanism,
  example: Example,
  changes: ExampleParams,
): CheckedResult {
  const live = computeExample(heed, mechanism, example, changes);
  const params = paramsOf(mechanism, example, changes);
  return { ...live, error: compare(heed, mechanism.id, example, params, live.results) };
}

/** What the normaliser saw: -Infinity where a key is hidden; null where a mechanism has no scores. */
export function scoresOf(
  heed: Heed,
  mechanism: Mechanism,
  example: Example,
  changes: ExampleParams,
): Result | null {
  if (!mechanism.params.includes("returnScores")) return null;
  const params = { ...readParams(mechanism, example, changes), returnScores: "biased" };
  const { scores } = heed.run(mechanism.id, example.inputs, params);
  return (scores as unknown as Result | undefined) ?? null;
}
