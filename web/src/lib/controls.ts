// Which parameters of a mechanism are controls of its picture: those that can change it, given what
// the others say. Rules name parameters, never mechanisms.
import type { Mechanism, Parameter } from "heed";
import type { Example, ExampleParams, ExampleValue } from "./example.js";

/** Types that a control can be made of. */
const SHOWN: ReadonlySet<string> = new Set(
  "bool word choice number count numbers integers expression".split(" "),
);

/** Parameters that ask for more results, or for another order of the same products. */
const NEVER: ReadonlySet<string> = new Set(
  "returnWeights returnLse returnScores returnTiles tilesOfQuery form".split(" "),
);

/** What a rule may ask of the call as it stands. */
interface Call {
  /** Whether the example has this input. */
  has(input: string): boolean;
  /** Whether a parameter is one of these words; true where the mechanism has no such parameter. */
  is(name: string, ...words: string[]): boolean;
  /** Whether it is none of these; a mechanism without the parameter may be named after a word. */
  not(name: string, ...words: string[]): boolean;
  takes(name: string): boolean;
  number(name: string): number;
  picture: "Weights" | "Output";
}

const relative = (call: Call): boolean =>
  ["relativeKeys", "relativeQueries", "relativeValues"].some((name) => call.has(name));
const pattern =
  (...words: string[]) =>
  (call: Call): boolean =>
    call.is("pattern", ...words);
const scaling =
  (...words: string[]) =>
  (call: Call): boolean =>
    call.is("scaling", ...words);

const scored = (call: Call): boolean => call.not("normalize", "average");
const looksAhead = (call: Call): boolean =>
  !call.takes("pattern") || call.not("pattern", "strided", "fixed");

const WHEN: Readonly<Record<string, (call: Call) => boolean>> = {
  score: scored,
  scale: scored,
  scoreMod: scored,
  // Capping keeps the order of scores.
  softcap: (call) => call.not("normalize", "average", "hard"),
  causal: looksAhead,
  // A mechanism that is causal by itself has no such switch.
  windowRight: (call) => call.takes("causal") && looksAhead(call),
  windowLeft: (call) => !call.takes("pooling") || call.not("pooling", "first"),
  kernel: (call) => call.is("normalize", "kernel_sum"),
  width: (call) =>
    call.is("normalize", "kernel_sum")
      ? call.not("kernel", "constant")
      : call.is("score", "squared_distance"),
  temperature: (call) => call.is("score", "cosine"),
  minTemperature: (call) => call.is("score", "cosine"),
  topK: (call) => call.is("normalize", "top_k"),
  sigmoidBias: (call) => call.is("normalize", "sigmoid"),
  lengthPower: (call) => call.is("normalize", "relu", "relu_squared"),
  relativeRows: relative,
  relativeMaxDistance: (call) => relative(call) && call.is("relativeRows", "log_span"),
  bucketDirection: (call) => call.has("bucketBias"),
  bucketMaxDistance: (call) => call.has("bucketBias"),
  reach: pattern("dilated", "longformer"),
  dilation: pattern("dilated", "longformer", "neighborhood"),
  stride: pattern("strided", "fixed"),
  summary: pattern("fixed"),
  grid: pattern("axial", "swin_window", "neighborhood"),
  axis: pattern("axial"),
  windowSize: pattern("swin_window", "neighborhood"),
  shift: pattern("swin_window"),
  blockSize: (call) => call.is("pattern", "bigbird") || call.has("blockKeep"),
  windowBlocks: pattern("bigbird"),
  globalBlocks: pattern("bigbird"),
  randomBlocks: pattern("bigbird"),
  patternSeed: pattern("bigbird"),
  // Returned weights are those before dropout.
  dropoutP: (call) => call.picture === "Output",
  steps: (call) => call.not("normalize", "average", "hard"),
  tolerance: (call) => call.number("steps") > 1 && call.not("normalize", "average", "hard"),
  normEpsilon: (call) => call.is("subNorm", "rms"),
  epsilon: (call) => call.is("setNorm", "layer"),
  base: (call) => call.is("rope", "half", "interleaved"),
  scalingFactor: scaling("linear", "ntk", "dynamic_ntk", "yarn", "llama3"),
  originalLen: scaling("dynamic_ntk", "yarn", "llama3"),
  seqLen: scaling("dynamic_ntk"),
  betaFast: scaling("yarn"),
  betaSlow: scaling("yarn"),
  attentionFactor: scaling("yarn"),
  lowFreqFactor: scaling("llama3"),
  highFreqFactor: scaling("llama3"),
};

/** What heed refuses where nothing reads it: a visitor may have set it before another choice. */
const REFUSED: ReadonlySet<string> = new Set(
  (
    "kernel topK sigmoidBias lengthPower relativeRows relativeMaxDistance bucketDirection " +
    "bucketMaxDistance reach dilation stride summary grid axis windowSize shift blockSize " +
    "windowBlocks globalBlocks randomBlocks patternSeed scalingFactor originalLen seqLen betaFast " +
    "betaSlow attentionFactor lowFreqFactor highFreqFactor"
  ).split(" "),
);

/** The value that a parameter has: the visitor's, the example's, or its default. */
export function currentValue(
  parameter: Parameter | undefined,
  example: Example,
  changes: ExampleParams,
): ExampleValue {
  const name = parameter?.name ?? "";
  return changes[name] ?? example.params[name] ?? parameter?.default ?? "";
}

function callOf(
  mechanism: Mechanism,
  parameters: ReadonlyMap<string, Parameter>,
  example: Example,
  changes: ExampleParams,
): Call {
  const value = (name: string): ExampleValue =>
    changes[name] ?? example.params[name] ?? parameters.get(name)?.default ?? "";
  return {
    has: (input) => example.inputs[input] !== undefined,
    is: (name, ...words) => !mechanism.params.includes(name) || words.includes(String(value(name))),
    not: (name, ...words) =>
      !words.includes(mechanism.params.includes(name) ? String(value(name)) : mechanism.id),
    takes: (name) => mechanism.params.includes(name),
    number: (name) => Number(value(name)),
    picture: mechanism.params.includes("returnWeights") ? "Weights" : "Output",
  };
}

/** `given` without the parameters that nothing reads in this call. */
export function readParams(
  mechanism: Mechanism,
  example: Example,
  changes: ExampleParams,
  given: ExampleParams = { ...example.params, ...changes },
): ExampleParams {
  // No rule for these asks for a default.
  const call = callOf(mechanism, new Map(), example, changes);
  return Object.fromEntries(
    Object.entries(given).filter(([name]) => !REFUSED.has(name) || (WHEN[name]?.(call) ?? true)),
  );
}

/** The parameters that can change the picture of this call; expressions, which need room, last. */
export function controlsOf(
  mechanism: Mechanism,
  parameters: ReadonlyMap<string, Parameter>,
  example: Example,
  changes: ExampleParams,
): Parameter[] {
  const call = callOf(mechanism, parameters, example, changes);
  const rows = mechanism.params
    .filter((name) => !NEVER.has(name) && (WHEN[name]?.(call) ?? true))
    .map((name) => parameters.get(name))
    .filter((row): row is Parameter => row !== undefined && SHOWN.has(row.type));
  const isExpression = ({ type }: Parameter) => type === "expression";
  return [...rows.filter((row) => !isExpression(row)), ...rows.filter(isExpression)];
}

/**
 * What a visitor typed, as heed takes it: a number, a list of numbers, or text. What is none of these
 * is passed on as it is, so that heed itself says what it expects. Undefined when nothing is there.
 */
export function readTyped(type: string, text: string): ExampleValue | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  if (type === "expression") return trimmed;
  const parts = trimmed.split(/[\s,]+/).map((part) => Number(part.replace("−", "-")));
  if (parts.some(Number.isNaN)) return trimmed;
  return parts.length === 1 ? (parts[0] as number) : parts;
}
