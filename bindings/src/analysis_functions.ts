import type { AnalysisFunctions } from "./analysis.js";
import { type OptionNames, optionNames } from "./attention.js";
import { fail, HeedError } from "./errors.js";
import { execute, type Results } from "./execute.js";
import type { KernelGlue, ParamValue } from "./glue.js";
import type { Heap } from "./heap.js";
import {
  type Own,
  onlyOwn,
  prepareAlone,
  prepareOperation,
  readNumbers,
  readRank,
  takeOwn,
} from "./operation.js";
import { asRecord, isPlain } from "./option_names.js";
import type { Registry } from "./registry.js";
import type { Request } from "./request.js";
import { contiguousStrides, viewAsHeads } from "./shape.js";
import { elements, readList } from "./source.js";

function flag(name: string, value: unknown, absent: boolean): boolean {
  if (value === undefined) return absent;
  if (typeof value !== "boolean") fail("option", name, value, "true or false");
  return value;
}

function whole(name: string, value: unknown, low: number, high: number, unit: string): number {
  const expectation = `a whole number from ${low} to ${high}, ${unit}`;
  if (typeof value !== "number") fail("option", name, value, expectation);
  if (!Number.isSafeInteger(value) || value < low || value > high) {
    fail("range", name, value, expectation);
  }
  return value;
}

/** Reads `[begin, end)` within `len`. */
function range(name: string, value: unknown, len: number): [number, number] {
  if (value === undefined) return [0, len];
  if (!Array.isArray(value) || value.length !== 2) {
    fail("option", name, value, "[begin, end)");
  }
  const begin = whole(`${name}[0]`, value[0], 0, len, "the length");
  return [begin, whole(`${name}[1]`, value[1], begin, len, "from begin to the length")];
}

/** Reads a list of tokens; all of them when absent. */
function tokens(name: string, value: unknown, len: number): number[] {
  if (value === undefined) return Array.from({ length: len }, (_, token) => token);
  return Array.from(readList(name, value, "a list of tokens"), (token, n) =>
    whole(`${name}[${n}]`, token, 0, len - 1, "the last token"),
  );
}

function lseInput(value: unknown, request: Request): Own["inputs"] {
  if (value === undefined) return [];
  if (value !== null && typeof value === "object" && isPlain(value) && !("data" in value)) {
    throw new HeedError(
      "option",
      "lse: got options, expected a tensor; options are the fourth argument, undefined for lse",
    );
  }
  const input = readRank("lse", value, 3, "[batch, heads, q_len]");
  const { batch = 0, heads = 0, qLen = 0 } = request.geometry ?? {};
  const { shape } = input.source;
  if (shape[0] !== batch || shape[1] !== heads || shape[2] !== qLen) {
    fail("shape", "lse.shape", [...shape], `[${batch}, ${heads}, ${qLen}] as in q`);
  }
  return [input];
}

/** Refuses a call that asks for no result. */
function checkAsks(what: string, results: Readonly<Record<string, unknown>>): void {
  if (Object.values(results).some((asked) => asked !== false && asked !== undefined)) return;
  const names = Object.keys(results).map((name) => `\`${name}\``);
  const last = names.pop();
  throw new HeedError(
    "option",
    `options: ${what} is asked for nothing; set ${names.join(", ")} or ${last}`,
  );
}

const lengths = (request: Request): { qLen: number; kvLen: number } =>
  request.geometry ?? { qLen: 0, kvLen: 0 };

const ANALYZE = new Set(
  "entropy max topWeights expectedDistance columnSums lse returnLse".split(" "),
);
const TILE = new Set(["rows", "columns"]);
const SIMILARITY = new Set(["cosine", "frobenius", "jensenShannon"]);
const HOPS = new Set(["hops"]);
const ERASURE = new Set(["rows", "change", "without"]);
const ATTRIBUTION = new Set(["rows", "columns", "positive", "columnSums", "pairs"]);

function analyzeOwn(own: Record<string, unknown>, request: Request): Own {
  const { qLen, kvLen } = lengths(request);
  const params: Record<string, ParamValue | undefined> = {};
  for (const name of ["entropy", "max", "expectedDistance", "columnSums", "returnLse"]) {
    params[name] = flag(name, own[name], false);
  }
  const { topWeights } = own;
  params.topWeights =
    topWeights === undefined
      ? undefined
      : whole("topWeights", topWeights, 1, kvLen, "the number of keys");
  checkAsks("analyze", params);
  const offset = request.paramNames.split(" ").includes("query_offset");
  if (params.expectedDistance && qLen !== kvLen && !offset) {
    throw new HeedError(
      "option",
      `queryOffset: expectedDistance with q_len ${qLen} and kv_len ${kvLen} needs it: 0 puts the first query at the first key, "end" the last query at the last key`,
    );
  }
  return { inputs: lseInput(own.lse, request) ?? [], params };
}

function erasureOwn(own: Record<string, unknown>, request: Request): Own {
  const [qBegin, qEnd] = range("rows", own.rows, lengths(request).qLen);
  const without = flag("without", own.without, false);
  if (without && own.rows === undefined && qEnd !== 1) {
    throw new HeedError("option", "rows: missing, `without` needs one query, [i, i + 1]");
  }
  if (without && qEnd - qBegin !== 1) {
    fail("range", "rows", [qBegin, qEnd], "one query, [i, i + 1], beside `without`");
  }
  const change = flag("change", own.change, true);
  checkAsks("erasure", { change, without });
  return { params: { qBegin, qEnd, change, without } };
}

function attributionOwn(own: Record<string, unknown>, gradOutput: unknown, request: Request): Own {
  const { batch = 0, heads = 0, qLen = 0, kvLen = 0, layout } = request.geometry ?? {};
  const source = { ...readNumbers("gradOutput", gradOutput), name: "dOut" };
  const view = viewAsHeads("gradOutput", source.shape, layout ?? "bhld");
  const value = request.inputs.find((input) => input.source.name === "v");
  const expected = [batch, heads, qLen, value?.view.shape[3]];
  if (view.shape.some((extent, axis) => extent !== expected[axis])) {
    fail("shape", "gradOutput.shape", [...source.shape], "the shape of the output");
  }
  const [qBegin, qEnd] = range("rows", own.rows, qLen);
  const [kBegin, kEnd] = range("columns", own.columns, kvLen);
  const positive = flag("positive", own.positive, false);
  const columnSums = flag("columnSums", own.columnSums, true);
  const pairs = flag("pairs", own.pairs, false);
  checkAsks("attribution", { columnSums, pairs });
  const params = { qBegin, qEnd, kBegin, kEnd, positive, columnSums, pairs };
  return { inputs: [{ source, view }], params };
}

/** Runs `work` on a layer of a rollout; its errors say which. */
function inLayer<T>(n: number, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof HeedError)) throw error;
    const { code, cause } = error;
    const message = error.message.replace(/^options: /, "");
    throw new HeedError(code, `layers[${n}]: ${message}`, { cause });
  }
}

/** One-hot rows [batch, tokens, len]. */
function oneHot(batch: number, list: readonly number[], len: number) {
  const data = new Float32Array(batch * list.length * len);
  for (let row = 0; row < batch * list.length; row++) {
    data[row * len + (list[row % list.length] as number)] = 1;
  }
  return { data, shape: [batch, list.length, len] };
}

/** The functions of analysis.ts on one instance. */
export class Analysis {
  readonly #heap: Heap<KernelGlue>;
  readonly #registry: Registry;
  readonly #names: OptionNames;

  constructor(heap: Heap<KernelGlue>, registry: Registry) {
    this.#heap = heap;
    this.#registry = registry;
    this.#names = optionNames(registry);
  }

  #prepare(
    id: string,
    tensors: { q: unknown; k: unknown; v?: unknown },
    rest: Record<string, unknown>,
    own: (request: Request) => Own,
  ): Request {
    this.#heap.checkUsable();
    return prepareOperation(this.#registry, this.#names, id, tensors, rest, own);
  }

  #run(request: Request): Results {
    return execute(this.#heap, request, "operation");
  }

  analyze = (q: unknown, k: unknown, options?: unknown): Results => {
    const { own, rest } = takeOwn("analyze", options, ANALYZE);
    return this.#run(this.#prepare("analyze", { q, k }, rest, (r) => analyzeOwn(own, r)));
  };

  weightsTile = (q: unknown, k: unknown, lse: unknown, options?: unknown): Results => {
    const { own, rest } = takeOwn("weightsTile", options, TILE);
    const request = this.#prepare("weights_tile", { q, k }, rest, (r) => {
      const [qBegin, qEnd] = range("rows", own.rows, lengths(r).qLen);
      const [kBegin, kEnd] = range("columns", own.columns, lengths(r).kvLen);
      return { inputs: lseInput(lse, r) ?? [], params: { qBegin, qEnd, kBegin, kEnd } };
    });
    return this.#run(request);
  };

  headSimilarity = (q: unknown, k: unknown, options?: unknown): Results => {
    const { own, rest } = takeOwn("headSimilarity", options, SIMILARITY);
    const params = {
      cosine: flag("cosine", own.cosine, true),
      frobenius: flag("frobenius", own.frobenius, false),
      jensenShannon: flag("jensenShannon", own.jensenShannon, false),
    };
    checkAsks("headSimilarity", params);
    return this.#run(this.#prepare("head_similarity", { q, k }, rest, () => ({ params })));
  };

  multiHop = (q: unknown, k: unknown, x: unknown, options?: unknown): Results => {
    const { own, rest } = takeOwn("multiHop", options, HOPS);
    const hops = whole("hops", own.hops, 0, 2 ** 31 - 1, "how often to apply the weights");
    const request = this.#prepare("multi_hop", { q, k }, rest, (r) => {
      const source = readNumbers("x", x);
      const view = viewAsHeads("x", source.shape, r.geometry?.layout ?? "bhld");
      return { inputs: [{ source, view }], params: { hops } };
    });
    return this.#run(request);
  };

  erasure = (q: unknown, k: unknown, v: unknown, options?: unknown): Results => {
    const { own, rest } = takeOwn("erasure", options, ERASURE);
    if (v === undefined) throw new HeedError("option", "v: missing, erasure needs it");
    return this.#run(this.#prepare("erasure", { q, k, v }, rest, (r) => erasureOwn(own, r)));
  };

  attribution = (
    q: unknown,
    k: unknown,
    v: unknown,
    gradOutput: unknown,
    options?: unknown,
  ): Results => {
    const { own, rest } = takeOwn("attribution", options, ATTRIBUTION);
    if (v === undefined) throw new HeedError("option", "v: missing, attribution needs it");
    const request = this.#prepare("attribution", { q, k, v }, rest, (r) =>
      attributionOwn(own, gradOutput, r),
    );
    return this.#run(request);
  };

  rollout = (layers: unknown, options?: unknown): Results => {
    this.#heap.checkUsable();
    if (!Array.isArray(layers) || layers.length === 0) {
      fail("option", "layers", layers, "a list of { q, k, ...options }, at least one");
    }
    const own = onlyOwn(options, new Set(["tokens", "residual"]));
    const { residual = 0.5 } = own;
    if (typeof residual !== "number" || !(residual >= 0 && residual <= 1)) {
      fail("range", "residual", residual, "a number from 0 to 1");
    }
    const requests = Array.from(layers as unknown[], (layer, n) =>
      inLayer(n, () => this.#rolloutLayer(layer, residual)),
    );
    const { batch = 0, qLen = 0 } = requests[0]?.geometry ?? {};
    const plain = requests.every((request) => request.plain);
    let rows: unknown = oneHot(batch, tokens("tokens", own.tokens, qLen), qLen);
    for (let n = requests.length - 1; n >= 0; n--) {
      const request = requests[n] as Request;
      const input = readRank("rows", rows, 3, "[batch, tokens, len]");
      const view = {
        shape: [...input.source.shape],
        strides: contiguousStrides(input.source.shape),
      };
      const inputs = [...request.inputs, { source: input.source, view }];
      // Between the layers rows are plain; only the last result is what the caller gets.
      const call = { ...request, inputs, plain: n > 0 || plain };
      rows = inLayer(n, () => this.#run(call)).rows;
    }
    return { rows };
  };

  #rolloutLayer(layer: unknown, residual: number): Request {
    const { q, k, ...rest } = asRecord("options", layer);
    const own = takeOwn("a layer of a rollout", rest, new Set());
    const params = { residual };
    const request = this.#prepare("rollout_layer", { q, k }, own.rest, () => ({ params }));
    const { qLen, kvLen } = lengths(request);
    if (qLen !== kvLen) {
      throw new HeedError(
        "shape",
        `q_len ${qLen} and kv_len ${kvLen} differ; a rollout needs queries and keys of the same tokens`,
      );
    }
    return request;
  }

  attentionFlow = (maps: unknown, options?: unknown): Results => {
    const own = onlyOwn(options, new Set(["sources"]));
    this.#heap.checkUsable();
    const source = readNumbers("maps", maps);
    const { shape } = source;
    const len = shape.at(-1) ?? 0;
    if (shape.length < 3 || shape.length > 4 || shape.at(-2) !== len) {
      fail("shape", "maps.shape", [...shape], "[batch, layers, len, len] or [layers, len, len]");
    }
    const sources = tokens("sources", own.sources, len);
    return this.#run(prepareAlone("attention_flow", { inputs: [{ source }], params: { sources } }));
  };

  headImportance = (output: unknown, options?: unknown): Results => {
    const own = onlyOwn(options, new Set(["wO"]));
    this.#heap.checkUsable();
    const inputs = [readRank("output", output, 4, "[batch, heads, len, dim]")];
    if (own.wO !== undefined) inputs.push(readRank("wO", own.wO, 2, "[embed_dim, heads * dim]"));
    return this.#run(prepareAlone("head_importance", { inputs }));
  };

  pruneHeads = (importance: unknown, options?: unknown): Results => {
    const own = onlyOwn(options, new Set(["numKept"]));
    this.#heap.checkUsable();
    const input = readRank("importance", importance, 1, "[heads], with a shape");
    const numKept = whole("numKept", own.numKept, 0, elements(input.source).length, "the heads");
    return this.#run(prepareAlone("prune_heads", { inputs: [input], params: { numKept } }));
  };

  merge = (states: unknown): Results => {
    this.#heap.checkUsable();
    if (!Array.isArray(states) || states.length === 0) {
      fail("option", "states", states, "a list of { output, lse }, at least one");
    }
    const inputs = Array.from(states as unknown[]).flatMap((state, n) => {
      const { output, lse } = asRecord(`states[${n}]`, state);
      const read = readNumbers(`states[${n}].output`, output);
      const view = viewAsHeads(read.name, read.shape, "bhld");
      const { source } = readRank(`states[${n}].lse`, lse, 3, "[batch, heads, q_len]");
      return [
        { source: { ...read, name: `output_${n}` }, view },
        { source: { ...source, name: `lse_${n}` } },
      ];
    });
    return this.#run(prepareAlone("merge", { inputs }));
  };
}

/** The same, typed. */
export function analysisOf(heap: Heap<KernelGlue>, registry: Registry): AnalysisFunctions {
  return new Analysis(heap, registry) as unknown as AnalysisFunctions;
}
