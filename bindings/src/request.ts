import { fail, HeedError } from "./errors.js";
import { bindExtents, type Extents } from "./extents.js";
import {
  broadcastShape,
  checkKeyLengths,
  checkPerHead,
  type Geometry,
  measure,
} from "./geometry.js";
import type { CallArguments, ParamValue } from "./glue.js";
import type { Heap, Scope } from "./heap.js";
import { asRecord, checkNames } from "./option_names.js";
import { checkNotNeeded, checkParam, expandDropout, expandWindow, publicName } from "./params.js";
import {
  type Mechanism,
  type MechanismInput,
  type Parameter,
  type Registry,
  snakeCase,
} from "./registry.js";
import { contiguousStrides, type Layout, type View4, viewAsHeads } from "./shape.js";
import { elements, place, type Reading, type Role, readSource, type Source } from "./source.js";
import { checkRead } from "./unread.js";
import { Wire } from "./wire.js";

/** A checked call: nothing of it was copied into the instance yet. */
export interface Request {
  id: string;
  inputs: { source: Source; view: View4 }[];
  paramNames: string;
  paramValues: ParamValue[];
  /** Names that refusals of C++ may use: all that the mechanism takes, in C++'s spelling. */
  words: ReadonlySet<string>;
  /** How the caller spells one of these, given in camel case. */
  nameOf: (name: string) => string;
  /** Of q, k and v, or of q and v; absent for mechanisms without them. */
  geometry: Geometry | undefined;
  /** Rank and layout of q, else of k or v, or of the x of the position family, which the output takes over. */
  form: { rank: number; layout: Layout } | undefined;
  /** True when no argument is a Tensor: then results own ordinary memory. */
  plain: boolean;
  /** q came as a Float16Array: a float16 output is one too. */
  float16Array: boolean;
}

const ROLES: Readonly<Record<string, Role>> = { float: "numbers", keep: "keep", int: "lengths" };

/** What may be stored in two bytes; everything else is float32. */
const STORED: ReadonlySet<string> = new Set(["q", "k", "v"]);

function makeReading({ family }: Mechanism, input: MechanismInput): Reading {
  const vector = input.shapes.some((shape) => shape.length === 1);
  const half = family !== "layer" && family !== "position" && STORED.has(input.name);
  return {
    role: ROLES[input.kind] ?? "numbers",
    ...(vector ? { vector } : {}),
    ...(half ? { half } : {}),
  };
}

/** Every call asks for the same few: each input belongs to one mechanism. */
const READINGS = new WeakMap<MechanismInput, Reading>();

function toReading(mechanism: Mechanism, input: MechanismInput, float64: boolean): Reading {
  let reading = READINGS.get(input);
  if (reading === undefined) {
    reading = makeReading(mechanism, input);
    READINGS.set(input, reading);
  }
  return float64 ? { ...reading, float64 } : reading;
}

function checkLayout(value: unknown): Layout {
  if (value === undefined || value === "bhld") return "bhld";
  if (value === "blhd") return "blhd";
  fail("option", "layout", value, '"bhld" or "blhd"');
}

/** Reads `captured: { slope: ..., table: ... }`: tensors that expressions read by name. */
function readNamed(
  input: MechanismInput,
  value: unknown,
  float64: boolean,
  sources: Map<string, Source>,
): void {
  for (const [name, tensor] of Object.entries(asRecord(input.name, value))) {
    if (!/^[A-Za-z_]\w*$/.test(name)) {
      fail("option", `${input.name} name`, name, "letters, digits and _, a letter first");
    }
    if (tensor === undefined) continue;
    const full = `${input.name}.${name}`;
    const reading: Reading = { role: "numbers", vector: true, ...(float64 ? { float64 } : {}) };
    sources.set(full, readSource(full, tensor, reading));
  }
}

/** Reads the inputs that are given, in the order of the registry. */
function readInputs(
  mechanism: Mechanism,
  given: Record<string, unknown>,
  float64: boolean,
): Map<string, Source> {
  const sources = new Map<string, Source>();
  for (const input of mechanism.inputs) {
    const { name, optional } = input;
    const value = given[name];
    if (input.kind === "named") {
      readNamed(input, value, float64, sources);
      continue;
    }
    if (value === undefined) {
      if (optional) continue;
      throw new HeedError("option", `${name}: missing, ${mechanism.id} needs it`);
    }
    sources.set(name, readSource(name, value, toReading(mechanism, input, float64)));
  }
  return sources;
}

const asGiven = ({ shape }: Source): View4 => ({
  shape: [...shape],
  strides: contiguousStrides(shape),
});

function viewOptional(source: Source, geometry: Geometry): View4 {
  const { name } = source;
  if (name === "keep" || name === "bias") {
    const shape4 = broadcastShape(source, geometry);
    return { shape: shape4, strides: contiguousStrides(shape4) };
  }
  if (name === "keyLengths") checkKeyLengths(source, elements(source), geometry);
  if (name === "sinks" || name === "alibiSlopes") checkPerHead(source, elements(source), geometry);
  return asGiven(source);
}

/** What is seen as [batch, heads, len, dim], in either layout, and how the first of it was given. */
interface Viewed {
  geometry?: Geometry;
  views: Readonly<Record<string, View4>>;
  form: Request["form"];
}

/** Queries, keys and values, and the x of the position family. */
function viewSources(
  mechanism: Mechanism,
  params: ReadonlyMap<string, ParamValue>,
  sources: ReadonlyMap<string, Source>,
  layout: Layout,
): Viewed {
  const [q, k, v] = [sources.get("q"), sources.get("k"), sources.get("v")];
  if (q && v) {
    const { geometry, views } = measure({ q, k, v }, layout, keyWidth(mechanism, params));
    return { geometry, views: { ...views }, form: geometry };
  }
  const x = mechanism.family === "position" ? sources.get("x") : undefined;
  const given = [q, k, v, x].filter((source) => source !== undefined);
  const views = given.map(({ name, shape }) => [name, viewAsHeads(name, shape, layout)] as const);
  const rank = given[0]?.shape.length;
  return {
    views: Object.fromEntries(views),
    form: rank === undefined ? undefined : { rank, layout },
  };
}

/** Inputs whose rules say more than their shapes do. */
const OWN_RULES: ReadonlySet<string> = new Set(["q", "k", "v", "keep", "bias", "keyLengths"]);

/** Checks the shapes of the inputs against each other. */
function bindShapes(
  mechanism: Mechanism,
  sources: ReadonlyMap<string, Source>,
  geometry: Geometry | undefined,
  views: Readonly<Record<string, View4>>,
): void {
  // Without a geometry nothing has compared what is viewed.
  const open = [...sources.values()]
    .filter(({ name }) => !(geometry && (views[name] || OWN_RULES.has(name))) && name !== "x")
    .map((source) => ({ ...source, shape: views[source.name]?.shape ?? source.shape }));
  if (open.length === 0) return;
  const extents: Extents = new Map();
  if (geometry !== undefined) {
    const { batch, heads, qLen, kvLen, headDim } = geometry;
    const kvHeads = (views.k ?? views.v)?.shape[1] ?? heads;
    const headDimV = views.v?.shape[3] ?? headDim;
    const settle = (symbol: string, extent: number, from: string) =>
      extents.set(symbol, { extent, from });
    settle("batch", batch, "q");
    settle("num_heads", heads, "q");
    settle("q_len", qLen, "q");
    settle("head_dim", headDim, "q");
    settle("num_kv_heads", kvHeads, "k");
    settle("kv_len", kvLen, "k");
    settle("head_dim_k", views.k?.shape[3] ?? headDim, "k");
    settle("head_dim_v", headDimV, "v");
  }
  ["batch", "num_heads", "len", "embed_dim"].forEach((symbol, axis) => {
    if (views.x) extents.set(symbol, { extent: views.x.shape[axis] as number, from: "x" });
  });
  for (const source of open) {
    const input = mechanism.inputs.find(({ name }) => name === source.name);
    if (input) bindExtents(input, source, extents);
  }
}

/** Inputs that are read by distance, or that make a call causal. */
const POSITIONAL: readonly string[] = [
  "alibiSlopes",
  "distanceBias",
  "bucketBias",
  "relativeKeys",
  "relativeQueries",
  "relativeValues",
  "logGates",
];

const TWO_WIDTHS: readonly string[] = ["scoreMatrix", "keyWeight", "concatWeight"];

/** Scores with weights between q and k take keys of another width. */
function keyWidth(
  mechanism: Mechanism,
  params: ReadonlyMap<string, ParamValue>,
): "as queries" | "own" {
  const joins = mechanism.params.includes("score")
    ? params.get("score") === "bilinear" || params.get("score") === "additive"
    : mechanism.inputs.some(({ name }) => TWO_WIDTHS.includes(name));
  return joins ? "own" : "as queries";
}

/** The rules that tie parameters to shapes. */
function checkTogether(
  params: ReadonlyMap<string, ParamValue>,
  sources: ReadonlyMap<string, Source>,
  geometry: Geometry,
): void {
  const { batch, qLen, kvLen } = geometry;
  const offset = params.get("queryOffset");
  if (Array.isArray(offset) && offset.length !== batch) {
    throw new HeedError(
      "shape",
      `queryOffset: got ${offset.length} numbers, expected one per batch entry = ${batch}`,
    );
  }
  if (offset === "end" && sources.get("keyLengths")?.shape.length === 2) {
    throw new HeedError(
      "unsupported",
      'queryOffset: "end" needs one length per batch entry, but keyLengths has one per query; give numbers instead',
    );
  }
  const positional =
    (params.get("causal") === true && "causal") ||
    ((params.has("windowLeft") || params.has("windowRight")) && "window") ||
    POSITIONAL.find((name) => sources.has(name));
  if (positional && offset === undefined && qLen !== kvLen) {
    throw new HeedError(
      "option",
      `queryOffset: ${positional} with q_len ${qLen} and kv_len ${kvLen} needs it: 0 puts the first query at the first key, "end" the last query at the last key`,
    );
  }
}

function readParams(
  parameters: readonly Parameter[],
  given: Record<string, unknown>,
  nameOf: (name: string) => string,
): Map<string, ParamValue> {
  const params = new Map<string, ParamValue>();
  for (const parameter of parameters) {
    const { name } = parameter;
    const value = given[name];
    if (value === undefined) checkNotNeeded(parameter, name);
    else params.set(name, checkParam(parameter, nameOf(name), value));
  }
  return params;
}

const BUCKET_NAMES: ReadonlyMap<string, string> = new Map([
  ["numBuckets", "rows of bucketBias"],
  ["maxDistance", "bucketMaxDistance"],
]);

/** What is said of a name in the wrong argument of `heed.run` and its like. */
const A_PARAMETER = "a parameter: it goes into the third argument";
const AN_INPUT = "an input: it goes into the second argument";

/** How a call differs from one of `heed.run`. */
export interface CallForm {
  /** The oracle takes float64 numbers too. */
  readonly float64?: boolean;
  /** How parameters are spelled. */
  readonly nameOf?: (name: string) => string;
}

/** Checks everything about a call. */
export function prepare(
  registry: Registry,
  id: unknown,
  inputs: unknown,
  params: unknown,
  { float64 = false, nameOf: spelled = publicName }: CallForm = {},
): Request {
  const { mechanism, ...names } = registry.callNames(id);
  const buckets = names.inputs.has("bucketBias") ? BUCKET_NAMES : undefined;
  const nameOf = (name: string) => buckets?.get(name) ?? spelled(name);
  const givenInputs = asRecord("inputs", inputs);
  const givenParams = asRecord("params", params);
  checkNames("inputs", givenInputs, names.inputs, names.params, A_PARAMETER);
  checkNames("params", givenParams, names.params, names.inputs, AN_INPUT);
  const all = expandDropout(expandWindow(givenParams));
  const checked = readParams(names.parameters, all, nameOf);
  const sources = readInputs(mechanism, givenInputs, float64);
  const present = new Set([...sources.keys()].map((name) => name.replace(/\..*/, "")));
  if (names.readers.size > 0) checkRead({ names, params: checked, inputs: present, nameOf });
  const layout = checkLayout(givenParams.layout);
  const { geometry, views, form } = viewSources(mechanism, checked, sources, layout);
  if (form === undefined && givenParams.layout !== undefined) {
    throw new HeedError("option", `layout: ${mechanism.id} has no input that it is read for`);
  }
  const placed = [...sources.values()].map((source) => ({
    source,
    view: views[source.name] ?? (geometry ? viewOptional(source, geometry) : asGiven(source)),
  }));
  bindShapes(mechanism, sources, geometry, views);
  if (geometry) checkTogether(checked, sources, geometry);
  return {
    id: mechanism.id,
    inputs: placed,
    paramNames: [...checked.keys()].map(snakeCase).join(" "),
    paramValues: [...checked.values()],
    words: names.words,
    nameOf,
    geometry,
    form,
    plain: placed.every(({ source }) => source.tensor === undefined),
    float16Array: sources.get("q")?.float16Array === true,
  };
}

/** Copies the inputs into the instance and says to C++ what is asked. */
export function placeRequest(request: Request, heap: Heap, scope: Scope): CallArguments {
  const wire = new Wire();
  for (const { source, view } of request.inputs) {
    const pointer = place(source, heap, scope);
    // The names of captured tensors are the caller's own words.
    const name = source.name.includes(".") ? source.name : snakeCase(source.name);
    wire.add(name, source.dtype, pointer, view.shape, view.strides);
  }
  const { id, paramNames, paramValues } = request;
  return [id, wire.names, wire.place(heap, scope), paramNames, paramValues];
}
