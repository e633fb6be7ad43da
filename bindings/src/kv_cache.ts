import type { OnlyKnownOf, OutputDType } from "./attention.js";
import {
  CACHE_COUNTS,
  type CacheDType,
  type CacheSizes,
  checkCount,
  readCacheDType,
  readCacheSizes,
} from "./cache_options.js";
import { fail, HeedError } from "./errors.js";
import { addOutput, inWordsOfJavaScript, toResult } from "./execute.js";
import type { KernelGlue, ParamValue } from "./glue.js";
import { type Heap, Scope } from "./heap.js";
import { asRecord, checkNames } from "./option_names.js";
import { checkParam } from "./params.js";
import { type Registry, snakeCase } from "./registry.js";
import { contiguousStrides, type Layout, type View4, viewAsHeads } from "./shape.js";
import { shownClass } from "./shown_class.js";
import {
  elements,
  type MatrixArgument,
  place,
  type Reading,
  readSource,
  type Source,
  type TensorArgument,
} from "./source.js";
import type { PlainTensor, Tensor, WithDispose } from "./tensor.js";
import { Wire } from "./wire.js";

export interface KvCacheOptions {
  /** Sequences, each of its own length. Default 1. */
  readonly batch?: number | undefined;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Default headDim. */
  readonly headDimV?: number | undefined;
  /** The most tokens of a sequence; without `blockSize` also its block: a contiguous cache. */
  readonly capacity?: number | undefined;
  /**
   * Tokens of a block of a paged cache. Default `capacity`; without one as many as fill 2 MiB, a power
   * of two from 64 to 1024; with `recentTokens` 64.
   */
  readonly blockSize?: number | undefined;
  /** Default "float32". */
  readonly dtype?: CacheDType | undefined;
  /** The last tokens that a query sees, its own included; older blocks are freed. Default all. */
  readonly recentTokens?: number | undefined;
  /** With `recentTokens`: the first tokens, which all later queries see. Default 0. */
  readonly sinkTokens?: number | undefined;
  /**
   * With `recentTokens`: so many of the older tokens stay, those that have received the largest weights
   * (H2O). Attend what is appended, once; `rewind` and ALiBi are refused. Default 0.
   */
  readonly heavyTokens?: number | undefined;
  /** For `topPages` of `attend`: tokens of a page, whose smallest and largest keys are kept. Default off. */
  readonly pageSize?: number | undefined;
}

export type { CacheDType } from "./cache_options.js";

/** One whole number for each sequence. */
export type Counts = TensorArgument | Int32Array | readonly number[];

/** Options of `append`. */
export interface CacheAppendOptions {
  /** How many of the `len` tokens each sequence takes, the first ones; default all. */
  readonly lengths?: Counts | undefined;
  readonly layout?: Layout | undefined;
}

/** Options of `attend`. The cache supplies positions, lengths and what stays visible; causal is always on. */
export interface CacheAttendOptions {
  /** Factor on q.k; absent means 1 / sqrt(head_dim). */
  readonly scale?: number | undefined;
  readonly softcap?: number | undefined;
  /** [num_heads] logits inside the softmax denominator. */
  readonly sinks?: TensorArgument | undefined;
  readonly alibiSlopes?: TensorArgument | undefined;
  /** How many of the q_len queries each sequence has, the first ones; default all. */
  readonly queryLengths?: Counts | undefined;
  readonly returnLse?: boolean | undefined;
  readonly layout?: Layout | undefined;
  /** Quest: each query head sees its own page and the best `topPages - 1` others. Default all. */
  readonly topPages?: number | undefined;
}

/** What a cache holds; blocks that forks share are counted by each of them. */
export interface CacheMemory {
  readonly bytes: number;
  readonly sharedBytes: number;
  readonly blocks: number;
  readonly blockSize: number;
}

type CacheTensor<Q, D extends "float32" | "float16" | "bfloat16"> = [Q] extends [Tensor]
  ? Tensor<D>
  : [Extract<Q, Tensor>] extends [never]
    ? PlainTensor<D>
    : Tensor<D> | PlainTensor<D>;

/** Results are Tensors when q is one. */
export type CacheResult<Q, O> = {
  readonly output: CacheTensor<Q, OutputDType<Q>>;
} & (O extends { readonly returnLse: true }
  ? { readonly lse: CacheTensor<Q, "float32"> }
  : { readonly lse?: CacheTensor<Q, "float32"> });

/** Keys and values of the tokens so far, in the memory of the instance. */
export interface KvCacheMembers {
  /** Tokens of each sequence so far, evicted ones included: positions of their next tokens. */
  readonly lengths: readonly number[];
  readonly disposed: boolean;
  /** k [batch, numKvHeads, len, headDim], v [batch, numKvHeads, len, headDimV]; ranks as attention. */
  append(k: MatrixArgument, v: MatrixArgument, options?: CacheAppendOptions): void;
  /**
   * Attention of the last q_len tokens of each sequence: q [batch, num_heads, q_len, headDim], after
   * their keys and values were appended. Output in the rank, layout and element type of q.
   */
  attend<const Q extends MatrixArgument, const O extends CacheAttendOptions = Record<never, never>>(
    q: Q,
    options?: O & OnlyKnownOf<O, CacheAttendOptions>,
  ): CacheResult<Q, O>;
  /** Forgets the last tokens of a sequence, so that `length` remain. */
  rewind(sequence: number, length: number): void;
  /** The tokens of a sequence that a KV head holds, ascending. */
  tokens(sequence: number, head: number): number[];
  /** A cache whose sequences begin as copies of these (default: all). Blocks are shared. */
  fork(sequences?: readonly number[]): KvCache;
  memory(): CacheMemory;
  /** Frees the blocks that no fork shares. May be called again. */
  dispose(): void;
}

export type KvCache = KvCacheMembers & WithDispose;

/** `heed.KvCache`: makes caches in that instance. */
export interface KvCacheConstructor {
  new (options: KvCacheOptions): KvCache;
}

const OPTION_NAMES: ReadonlySet<string> = new Set([...CACHE_COUNTS, "dtype"]);
const APPEND_NAMES: ReadonlySet<string> = new Set(["lengths", "layout"]);
const ATTEND_PARAMS = ["scale", "softcap"] as const;
const ATTEND_TENSORS = ["sinks", "alibiSlopes"] as const;
const ATTEND_NAMES: ReadonlySet<string> = new Set([
  ...ATTEND_PARAMS,
  ...ATTEND_TENSORS,
  "queryLengths",
  "returnLse",
  "layout",
  "topPages",
]);

/** What refusals of C++ may name. */
const WORDS: ReadonlySet<string> = new Set(
  [...OPTION_NAMES, ...APPEND_NAMES, ...ATTEND_NAMES].map(snakeCase),
);

/** Runs `work` on the module; refusals are in the words of callers. */
const callCache = <T>(heap: Heap<KernelGlue>, work: (glue: KernelGlue) => T) =>
  inWordsOfJavaScript({ words: WORDS, nameOf: (name) => name }, () => heap.callChecked(work));

const STORED: Reading = { role: "numbers", half: true };
function readLayout(value: unknown): Layout {
  if (value === undefined || value === "bhld") return "bhld";
  if (value === "blhd") return "blhd";
  return fail("option", "layout", value, '"bhld" or "blhd"');
}

/** One count per sequence, or undefined. */
function readLengths(
  name: string,
  value: unknown,
  batch: number,
  most: number,
): number[] | undefined {
  if (value === undefined) return undefined;
  const source = readSource(name, value, { role: "lengths", vector: true });
  const list = Array.from(elements(source));
  if (source.shape.length !== 1 || list.length !== batch) {
    throw new HeedError(
      "shape",
      `${name}: got shape [${source.shape.join(", ")}], expected one number per sequence = [${batch}]`,
    );
  }
  return list.map((item, index) => checkCount(`${name}[${index}]`, item, 0, most));
}

function expectShape(source: Source, view: View4, expected: readonly (number | string)[]): void {
  const fits = expected.every((extent, axis) => {
    return typeof extent === "string" || view.shape[axis] === extent;
  });
  if (fits) return;
  throw new HeedError(
    "shape",
    `${source.name}: got shape [${source.shape.join(", ")}], expected [${expected.join(", ")}] as [batch, heads, len, dim]`,
  );
}

/** A checked call of `attend`. */
interface Attend {
  q: Source;
  view: View4;
  tensors: Source[];
  params: Map<string, ParamValue>;
  layout: Layout;
  returnLse: boolean;
}

function readAttend(registry: Registry, sizes: CacheSizes, given: unknown, q: unknown): Attend {
  const options = asRecord("options", given);
  checkNames("options", options, ATTEND_NAMES);
  const layout = readLayout(options.layout);
  const source = readSource("q", q, STORED);
  const view = viewAsHeads("q", source.shape, layout);
  const { batch, numKvHeads, headDim } = sizes;
  expectShape(source, view, [batch, "num_heads", "q_len", headDim]);
  const [, heads = 0, qLen = 0] = view.shape;
  if (heads % numKvHeads !== 0) {
    throw new HeedError(
      "shape",
      `q: ${heads} heads are not a multiple of numKvHeads = ${numKvHeads}`,
    );
  }
  const params = new Map<string, ParamValue>();
  for (const name of ATTEND_PARAMS) {
    const value = options[name];
    if (value !== undefined) params.set(name, checkParam(registry.parameter(name), name, value));
  }
  if (options.topPages !== undefined) {
    if (sizes.pageSize === 0)
      fail("option", "topPages", options.topPages, "a cache with a pageSize");
    params.set("topPages", checkCount("topPages", options.topPages, 1));
  }
  const counts = readLengths("queryLengths", options.queryLengths, batch, qLen);
  if (counts !== undefined) params.set("queryLengths", counts);
  const tensors: Source[] = [];
  for (const name of ATTEND_TENSORS) {
    if (options[name] === undefined) continue;
    const tensor = readSource(name, options[name], { role: "numbers", vector: true });
    if (tensor.shape.length !== 1 || tensor.shape[0] !== heads) {
      fail("shape", `${name}.shape`, [...tensor.shape], `[num_heads] = [${heads}]`);
    }
    tensors.push(tensor);
  }
  const { returnLse = false } = options;
  if (typeof returnLse !== "boolean") fail("option", "returnLse", returnLse, "true or false");
  return { q: source, view, tensors, params, layout, returnLse };
}

const vectorView = (source: Source): View4 => ({
  shape: [...source.shape],
  strides: contiguousStrides(source.shape),
});

function addInput(wire: Wire, source: Source, view: View4, heap: Heap, scope: Scope): void {
  const pointer = place(source, heap, scope);
  wire.add(snakeCase(source.name), source.dtype, pointer, view.shape, view.strides);
}

/** Runs `attend` on the cache with this number. */
function runAttend(heap: Heap<KernelGlue>, id: number, sizes: CacheSizes, call: Attend): unknown {
  const { q, view, tensors, params, layout, returnLse } = call;
  const scope = new Scope(heap);
  try {
    const wire = new Wire();
    addInput(wire, q, view, heap, scope);
    for (const tensor of tensors) addInput(wire, tensor, vectorView(tensor), heap, scope);
    const [batch = 0, heads = 0, qLen = 0] = view.shape;
    const shape = [batch, heads, qLen, sizes.headDimV];
    const form = { rank: q.shape.length, layout };
    const dtype = q.dtype as "float32" | "float16" | "bfloat16";
    const specs = [{ name: "output", shape, dtype }];
    if (returnLse) specs.push({ name: "lse", shape: [batch, heads, qLen], dtype: "float32" });
    const outputs = specs.map((spec) => addOutput(wire, spec, { form }, scope));
    const names = [...params.keys()].map(snakeCase).join(" ");
    const table = wire.place(heap, scope);
    callCache(heap, (glue) => glue.cacheAttend(id, wire.names, table, names, [...params.values()]));
    const plain = [q, ...tensors].every(({ tensor }) => tensor === undefined);
    const kind = { plain, float16Array: q.float16Array === true };
    return Object.fromEntries(
      outputs.map((output) => [output.name, toResult(output, kind, heap, scope)]),
    );
  } finally {
    scope.free();
  }
}

/** A cache that the module has already: a fork. Callers have no such object. */
class Made {
  constructor(
    readonly sizes: CacheSizes,
    readonly id: number,
  ) {}
}

/** The class behind `heed.KvCache` of an instance. */
export function kvCacheOf(heap: Heap<KernelGlue>, registry: Registry): KvCacheConstructor {
  const net = new FinalizationRegistry((id: number) => {
    heap.release((glue) => glue.cacheFree(id));
  });

  class Cache implements KvCacheMembers {
    readonly #sizes: CacheSizes;
    readonly #id: number;
    #disposed = false;

    constructor(options: KvCacheOptions, made?: unknown) {
      heap.checkUsable();
      if (made instanceof Made) {
        this.#sizes = made.sizes;
        this.#id = made.id;
      } else {
        const given = asRecord("options", options);
        checkNames("options", given, OPTION_NAMES);
        const sizes = readCacheSizes(given);
        const { batch, numKvHeads, headDim, headDimV, capacity, blockSize } = sizes;
        const numbers = [batch, numKvHeads, headDim, headDimV, capacity, blockSize];
        numbers.push(readCacheDType(given.dtype), sizes.recentTokens, sizes.sinkTokens);
        numbers.push(sizes.heavyTokens, sizes.pageSize);
        this.#sizes = sizes;
        this.#id = callCache(heap, (glue) => glue.cacheNew(numbers));
      }
      net.register(this, this.#id, this);
    }

    get disposed(): boolean {
      return this.#disposed || heap.closed;
    }

    get #number(): number {
      if (this.disposed) throw new HeedError("disposed", "cache: this cache was disposed of");
      return this.#id;
    }

    get lengths(): readonly number[] {
      const id = this.#number;
      return callCache(heap, (glue) => glue.cacheInfo(id)).lengths;
    }

    append(k: MatrixArgument, v: MatrixArgument, options?: CacheAppendOptions): void {
      const id = this.#number;
      const given = asRecord("options", options);
      checkNames("options", given, APPEND_NAMES);
      const { batch, numKvHeads, headDim, headDimV } = this.#sizes;
      const layout = readLayout(given.layout);
      const sources = [readSource("k", k, STORED), readSource("v", v, STORED)] as const;
      const views = sources.map(({ name, shape }) => viewAsHeads(name, shape, layout));
      const [kView, vView] = views as [View4, View4];
      expectShape(sources[0], kView, [batch, numKvHeads, "len", headDim]);
      const len = kView.shape[2] as number;
      expectShape(sources[1], vView, [batch, numKvHeads, len, headDimV]);
      const lengths = readLengths("lengths", given.lengths, batch, len) ?? [];
      const scope = new Scope(heap);
      try {
        const wire = new Wire();
        addInput(wire, sources[0], kView, heap, scope);
        addInput(wire, sources[1], vView, heap, scope);
        const table = wire.place(heap, scope);
        callCache(heap, (glue) => glue.cacheAppend(id, wire.names, table, lengths));
      } finally {
        scope.free();
      }
    }

    attend(q: MatrixArgument, options?: CacheAttendOptions): never {
      const id = this.#number;
      const call = readAttend(registry, this.#sizes, options, q);
      for (const tensor of call.tensors) checkFinite(tensor);
      // Typed by `KvCacheMembers`; the class does not know Q and O.
      return runAttend(heap, id, this.#sizes, call) as never;
    }

    rewind(sequence: number, length: number): void {
      const id = this.#number;
      checkCount("sequence", sequence, 0, this.#sizes.batch - 1);
      checkCount("length", length, 0);
      callCache(heap, (glue) => glue.cacheRewind(id, sequence, length));
    }

    tokens(sequence: number, head: number): number[] {
      const id = this.#number;
      checkCount("sequence", sequence, 0, this.#sizes.batch - 1);
      checkCount("head", head, 0, this.#sizes.numKvHeads - 1);
      return callCache(heap, (glue) => glue.cacheTokens(id, sequence, head));
    }

    fork(sequences?: readonly number[]): KvCache {
      const id = this.#number;
      const { batch } = this.#sizes;
      const all = () => Array.from({ length: batch }, (_, b) => b);
      const from = sequences === undefined ? all() : sequences;
      if (!Array.isArray(from) || from.length === 0) {
        fail("option", "sequences", sequences, "a list of sequence numbers, at least one");
      }
      const numbers = Array.from(from, (b: unknown, n) =>
        checkCount(`sequences[${n}]`, b, 0, batch - 1),
      );
      const fork = callCache(heap, (glue) => glue.cacheFork(id, numbers));
      const sizes = { ...this.#sizes, batch: from.length };
      return Reflect.construct(Cache, [{}, new Made(sizes, fork)], shown) as KvCache;
    }

    memory(): CacheMemory {
      const id = this.#number;
      const { lengths: _, ...memory } = callCache(heap, (glue) => glue.cacheInfo(id));
      return memory;
    }

    dispose(): void {
      if (this.#disposed) return;
      this.#disposed = true;
      net.unregister(this);
      heap.release((glue) => glue.cacheFree(this.#id));
    }

    // `using`, where the engine knows the symbol: typed by `WithDispose`.
    static {
      const symbol = (Symbol as { dispose?: symbol }).dispose;
      if (symbol !== undefined) {
        Object.defineProperty(Cache.prototype, symbol, { value: Cache.prototype.dispose });
      }
    }
  }
  const shown: KvCacheConstructor = shownClass("KvCache", Cache, (options, target) =>
    Reflect.construct(Cache, [options], target),
  );
  return shown;
}

/** Sinks may be -Infinity (no sink); everything else is finite. */
function checkFinite(source: Source): void {
  const values = elements(source);
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number;
    if (Number.isFinite(value) || (source.name === "sinks" && value === -Infinity)) continue;
    fail("range", `${source.name}[${i}]`, value, "a finite number");
  }
}
