import {
  ATTENTION_ID,
  type AttentionOptions,
  type OnlyKnown,
  optionNames,
  type ResultTensor,
  splitOptions,
} from "./attention.js";
import { fail, HeedError } from "./errors.js";
import { inWordsOfJavaScript, toResult } from "./execute.js";
import type { KernelGlue } from "./glue.js";
import { type Heap, Scope } from "./heap.js";
import type { RunInputs, RunParams } from "./heed.js";
import { noValues } from "./operation.js";
import { asRecord, checkNames } from "./option_names.js";
import type { Registry } from "./registry.js";
import { placeRequest, prepare, type Request } from "./request.js";
import { checkBytes, checkExtent, contiguousStrides } from "./shape.js";
import type { PlainTensor, Tensor } from "./tensor.js";
import { Wire } from "./wire.js";

/** The sizes of the call whose keep rules are explained. */
export interface ExplainSizes {
  readonly qLen: number;
  /** Default qLen. */
  readonly kvLen?: number | undefined;
  /** Default 1. */
  readonly numHeads?: number | undefined;
  /** Default 1. */
  readonly batch?: number | undefined;
}

export interface ExplainFunction {
  /**
   * The picture of all keep rules of some options of `heed.attention`, without any q, k and v: 1 where
   * the query sees the key, [batch, numHeads, qLen, kvLen]. Reads causal, window, queryOffset,
   * keyLengths, prefixLengths, documents, patterns, lists, keep, keepMod and a bias of -Infinity, by
   * the code that the attention loop asks. Options that hide nothing are only checked by name. A
   * score of -Infinity hides a key too, but depends on q and k. O(picture) time and memory.
   */
  <const O extends AttentionOptions>(
    options: O & OnlyKnown<O>,
    sizes: ExplainSizes,
  ): ResultTensor<readonly [], readonly [], readonly [], O, "uint8">;
  /**
   * The same for a call of `heed.run`: any mechanism of the exact family with its inputs, of which q
   * and k are read for their shapes alone and v may be left out. Throws HeedError ("unsupported" for a
   * mechanism without keep rules).
   */
  (id: string, inputs: RunInputs, params?: RunParams): Tensor<"uint8"> | PlainTensor<"uint8">;
}

const SIZE_NAMES: ReadonlySet<string> = new Set(["qLen", "kvLen", "numHeads", "batch"]);

/** The options that decide which keys exist. */
const KEEP_NAMES: ReadonlySet<string> = new Set(
  (
    "causal window queryOffset keep keyLengths prefixLengths queryDocuments keyDocuments bias " +
    "keepMod captured pattern reach dilation globalTokens stride summary grid axis windowSize shift " +
    "blockSize windowBlocks globalBlocks lastBlocks randomBlocks patternSeed blockKeep " +
    "blockIndptr blockIndices keepPairs"
  ).split(" "),
);

function readSizes(given: unknown): [batch: number, heads: number, qLen: number, kvLen: number] {
  const sizes = asRecord("sizes", given);
  checkNames("sizes", sizes, SIZE_NAMES);
  const size = (name: string, otherwise?: number): number => {
    const value = sizes[name] === undefined ? otherwise : sizes[name];
    if (typeof value !== "number") fail("option", `sizes.${name}`, value, "a whole number >= 0");
    return checkExtent(`sizes.${name}`, value);
  };
  const qLen = size("qLen");
  return [size("batch", 1), size("numHeads", 1), qLen, size("kvLen", qLen)];
}

class Explain {
  readonly #heap: Heap<KernelGlue>;
  readonly #registry: Registry;

  constructor(heap: Heap<KernelGlue>, registry: Registry) {
    this.#heap = heap;
    this.#registry = registry;
  }

  explain = (what: unknown, inputs?: unknown, params?: unknown): unknown => {
    this.#heap.checkUsable();
    if (typeof what !== "string") return this.#picture(this.#ofOptions(what, inputs));
    const given = asRecord("inputs", inputs);
    const takesV = this.#registry.callNames(what).inputs.has("v");
    const v =
      takesV && given.v === undefined && given.k !== undefined ? noValues(given.k) : given.v;
    const request = prepare(
      this.#registry,
      what,
      v === undefined ? given : { ...given, v },
      params,
    );
    return this.#picture(request);
  };

  #ofOptions(options: unknown, sizes: unknown): Request {
    if (options === undefined || options === null) {
      fail("option", "options", options, "options of heed.attention, or the id of a mechanism");
    }
    const [batch, heads, qLen, kvLen] = readSizes(sizes);
    const empty = (len: number) => ({ data: new Float32Array(0), shape: [batch, heads, len, 0] });
    const { inputs, params } = splitOptions(optionNames(this.#registry), options);
    const only = (all: Record<string, unknown>) =>
      Object.fromEntries(Object.entries(all).filter(([name]) => KEEP_NAMES.has(name)));
    const [q, k] = [empty(qLen), empty(kvLen)];
    const { captured, ...rules } = only(inputs);
    // What scores and weights read is no matter here.
    const tensors = params.keepMod === undefined ? rules : { ...rules, captured };
    return prepare(this.#registry, ATTENTION_ID, { q, k, v: k, ...tensors }, only(params));
  }

  #picture(request: Request): unknown {
    const scope = new Scope(this.#heap);
    try {
      const { geometry } = request;
      if (geometry === undefined) {
        throw new HeedError(
          "unsupported",
          `id: mechanism "${request.id}" has no keep rules that could be explained`,
        );
      }
      const shape = [geometry.batch, geometry.heads, geometry.qLen, geometry.kvLen];
      const dtype = "uint8";
      const pointer = scope.allocate("picture", checkBytes("picture", shape, dtype));
      const wire = new Wire();
      wire.add("picture", dtype, pointer, shape, contiguousStrides(shape));
      const call = placeRequest(request, this.#heap, scope);
      const table = wire.place(this.#heap, scope);
      inWordsOfJavaScript(request, () =>
        this.#heap.callChecked((glue) => glue.explain(...call, table)),
      );
      return toResult({ name: "picture", shape, dtype, pointer }, request, this.#heap, scope);
    } finally {
      scope.free();
    }
  }
}

/** `heed.explain` of an instance. */
export const explainOf = (heap: Heap<KernelGlue>, registry: Registry): ExplainFunction =>
  new Explain(heap, registry).explain as unknown as ExplainFunction;
