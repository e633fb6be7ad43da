import { ATTENTION_ID, type OptionNames, splitOptions } from "./attention.js";
import { HeedError } from "./errors.js";
import type { ParamValue } from "./glue.js";
import { asRecord, checkNames } from "./option_names.js";
import { publicName } from "./params.js";
import { type Registry, snakeCase } from "./registry.js";
import { prepare, type Request } from "./request.js";
import { contiguousStrides, type View4 } from "./shape.js";
import { readSource, type Source, type TensorData } from "./source.js";

/** A tensor of an operation beside those of attention, as C++ is to see it. */
export interface OwnInput {
  source: Source;
  view?: View4 | undefined;
}

/** What an operation of cpp/include/heed/operations.h takes beside what attention takes. */
export interface Own {
  inputs?: OwnInput[];
  params?: Record<string, ParamValue | undefined>;
}

const NUMBERS = { role: "numbers" } as const;

export const readNumbers = (name: string, value: unknown): Source =>
  readSource(name, value, NUMBERS);

/** Reads a tensor of this many extents; `meaning` says which. */
export function readRank(name: string, value: unknown, rank: number, meaning: string): OwnInput {
  const source = readNumbers(name, value);
  if (source.shape.length !== rank) {
    throw new HeedError(
      "shape",
      `${name}: got rank ${source.shape.length} (shape [${source.shape.join(", ")}]), expected ${meaning}`,
    );
  }
  return { source };
}

/** Values of dimension 0, for what depends on queries and keys alone. */
export function noValues(k: unknown): TensorData {
  const { shape } = readSource("k", k, { ...NUMBERS, half: true });
  return { data: new Float32Array(0), shape: [...shape.slice(0, -1), 0] };
}

/** Splits options into those with these names and the rest. */
export function takeOwn(
  what: string,
  given: unknown,
  own: ReadonlySet<string>,
): { own: Record<string, unknown>; rest: Record<string, unknown> } {
  const taken: Record<string, unknown> = {};
  const rest: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(asRecord("options", given))) {
    (own.has(name) ? taken : rest)[name] = value;
  }
  for (const name of ["returnWeights", "returnScores", "returnLse"]) {
    if (rest[name] === undefined) continue;
    throw new HeedError("option", `options: ${what} has no \`${name}\`; heed.attention has`);
  }
  return { own: taken, rest };
}

/** Options that are all an operation's own. */
export function onlyOwn(given: unknown, own: ReadonlySet<string>): Record<string, unknown> {
  const options = asRecord("options", given);
  checkNames("options", options, own);
  return options;
}

function withOwn(request: Request, id: string, own: Own): Request {
  const inputs = (own.inputs ?? []).map(({ source, view }) => ({
    source,
    view: view ?? { shape: [...source.shape], strides: contiguousStrides(source.shape) },
  }));
  const params = Object.entries(own.params ?? {}).filter(([, value]) => value !== undefined);
  const names = params.map(([name]) => snakeCase(name));
  const inputNames = inputs.map(({ source }) => snakeCase(source.name));
  return {
    ...request,
    id,
    inputs: [...request.inputs, ...inputs],
    paramNames: [request.paramNames, ...names].filter((name) => name !== "").join(" "),
    paramValues: [...request.paramValues, ...params.map(([, value]) => value as ParamValue)],
    words: new Set([...request.words, ...names, ...inputNames]),
    plain: request.plain && inputs.every(({ source }) => source.tensor === undefined),
  };
}

/** A checked request of an operation without q and k. */
export function prepareAlone(id: string, own: Own): Request {
  const nothing = {
    inputs: [],
    paramNames: "",
    paramValues: [],
    words: new Set<string>(),
    nameOf: publicName,
    geometry: undefined,
    form: undefined,
  };
  return withOwn({ id, ...nothing, plain: true, float16Array: false }, id, own);
}

/** Checks q, k, v and the options of attention, then adds what is the operation's own. */
export function prepareOperation(
  registry: Registry,
  names: OptionNames,
  id: string,
  tensors: { q: unknown; k: unknown; v?: unknown },
  options: Record<string, unknown>,
  own: (request: Request) => Own,
): Request {
  const { q, k, v = noValues(k) } = tensors;
  const { inputs, params } = splitOptions(names, options);
  const request = prepare(registry, ATTENTION_ID, { q, k, v, ...inputs }, params);
  return withOwn(request, id, own(request));
}
