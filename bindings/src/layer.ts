import { describe, fail, HeedError } from "./errors.js";
import { execute, type Results } from "./execute.js";
import type { KernelGlue } from "./glue.js";
import type { Heap } from "./heap.js";
import { firstRow } from "./nested.js";
import { newTensor } from "./new_tensor.js";
import { asRecord, checkNames } from "./option_names.js";
import type { Registry } from "./registry.js";
import { prepare } from "./request.js";
import { INTERNAL, shownClass } from "./shown_class.js";
import { readState } from "./state_dict.js";
import type { HeapTensor } from "./tensor.js";

/** Reads the options of a layer's constructor. */
export class LayerOptions {
  readonly #given: Record<string, unknown>;

  constructor(given: unknown, names: readonly string[]) {
    this.#given = asRecord("options", given);
    checkNames("options", this.#given, new Set(names));
  }

  has(name: string): boolean {
    return this.#given[name] !== undefined;
  }

  /** A whole number from 1 to 2^28. */
  count(name: string, otherwise?: number): number {
    const value = this.#given[name] === undefined ? otherwise : this.#given[name];
    if (typeof value !== "number") fail("option", name, value, "a whole number >= 1");
    if (!Number.isSafeInteger(value) || value < 1 || value > 2 ** 28) {
      fail("range", name, value, "a whole number from 1 to 2^28");
    }
    return value;
  }

  flag(name: string, otherwise: boolean): boolean {
    const value = this.#given[name] === undefined ? otherwise : this.#given[name];
    if (typeof value !== "boolean") fail("option", name, value, "true or false");
    return value;
  }

  word<W extends string>(name: string, words: readonly W[], otherwise: W): W {
    const value = this.#given[name] === undefined ? otherwise : this.#given[name];
    const found = words.find((word) => word === value);
    if (found === undefined) {
      fail("option", name, value, `one of ${words.map((word) => JSON.stringify(word)).join(", ")}`);
    }
    return found;
  }

  /** A copy of an object, if there is one. */
  record(name: string): Readonly<Record<string, unknown>> | undefined {
    const value = this.#given[name];
    return value === undefined ? undefined : { ...asRecord(name, value) };
  }

  /** A finite number above `least`. */
  number(name: string, otherwise: number, least: number): number {
    const value = this.#given[name] === undefined ? otherwise : this.#given[name];
    if (typeof value !== "number") fail("option", name, value, "a number");
    if (!Number.isFinite(value) || value <= least) {
      fail("range", name, value, `a finite number above ${least}`);
    }
    return value;
  }
}

/** How the heads of a layer divide its width. */
export interface HeadSizes {
  readonly embedDim: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly headDimV: number;
}

export function readHeadSizes(options: LayerOptions): HeadSizes {
  const embedDim = options.count("embedDim");
  const numHeads = options.count("numHeads");
  const numKvHeads = options.count("numKvHeads", numHeads);
  if (numHeads % numKvHeads !== 0) {
    fail("range", "numKvHeads", numKvHeads, `a divisor of numHeads = ${numHeads}`);
  }
  if (!options.has("headDim") && embedDim % numHeads !== 0) {
    fail("range", "embedDim", embedDim, `a multiple of numHeads = ${numHeads}, or a headDim`);
  }
  const headDim = options.count("headDim", embedDim / numHeads);
  return { embedDim, numHeads, numKvHeads, headDim, headDimV: options.count("headDimV", headDim) };
}

/** A weight of the mechanism: elements and shape. */
export type Weight = [name: string, data: Float32Array, shape: readonly number[]];

export type WeightShapes = ReadonlyMap<string, readonly number[]>;

/** Reads weights by the mechanism's own names, each of exactly these shapes. */
export function readWeights(weights: unknown, options: unknown, shapes: WeightShapes): Weight[] {
  const read = readState(weights, options, shapes, "weights");
  return [...read].map(([name, data]) => [name, data, shapes.get(name) as readonly number[]]);
}

/** The last extent of a tensor argument, where it can be told without reading all of it. */
function lastExtent(value: unknown): number | undefined {
  if (value !== null && typeof value === "object" && "shape" in value) {
    const { shape } = value as { shape: unknown };
    return Array.isArray(shape) ? (shape.at(-1) as number | undefined) : undefined;
  }
  return Array.isArray(value) ? firstRow(value)?.length : undefined;
}

export function checkLastExtent(
  name: string,
  value: unknown,
  what: string,
  expected: number,
): void {
  const extent = lastExtent(value);
  if (extent === undefined || extent === expected) return;
  throw new HeedError(
    "shape",
    `${name}: got a last extent of ${describe(extent)}, expected ${what} = ${expected}`,
  );
}

/** A mechanism as a layer: what its constructor settles, what `forward` is given. */
export interface LayerMechanism {
  readonly id: string;
  /** Inputs that are arguments of `forward`. */
  readonly streams: readonly string[];
  /** Inputs that are weights. */
  readonly weights: readonly string[];
  /** Parameters that the constructor settles. */
  readonly settled: readonly string[];
  /** What loads weights, for the message of a layer without any. */
  readonly loaders: string;
}

/** What every layer is: options, weights in the memory of an instance, and calls with them. */
export abstract class Layer<Sizes extends object> {
  /** With their defaults. */
  readonly options: Sizes;
  readonly #heap: Heap<KernelGlue>;
  readonly #registry: Registry;
  readonly #mechanism: LayerMechanism;
  #weights: Record<string, HeapTensor> = {};
  #loaded = false;
  #disposed = false;

  constructor(
    heap: Heap<KernelGlue>,
    registry: Registry,
    mechanism: LayerMechanism,
    readSizes: (options: unknown) => Sizes,
    options: unknown,
  ) {
    heap.checkUsable();
    this.#heap = heap;
    this.#registry = registry;
    this.#mechanism = mechanism;
    this.options = Object.freeze(readSizes(options));
  }

  get disposed(): boolean {
    return this.#disposed || this.#heap.closed;
  }

  protected checkUsable(): void {
    if (this.#disposed) throw new HeedError("disposed", "layer: it was disposed of");
    this.#heap.checkUsable();
  }

  protected checkLoaded(): void {
    this.checkUsable();
    if (this.#loaded) return;
    const { loaders } = this.#mechanism;
    throw new HeedError("option", `forward: the layer has no weights yet; call ${loaders}`);
  }

  /** Copies new weights in; on error the old ones stay. */
  protected replace(weights: readonly Weight[]): void {
    const next: Record<string, HeapTensor> = {};
    try {
      for (const [name, data, shape] of weights) {
        next[name] = newTensor(this.#heap, data, shape, undefined);
      }
    } catch (error) {
      this.#free(next);
      throw error;
    }
    this.#free(this.#weights);
    this.#weights = next;
    this.#loaded = true;
  }

  /** Runs the mechanism. Weights do not decide whether results are plain. */
  protected run(
    streams: Readonly<Record<string, unknown>>,
    settled: Readonly<Record<string, unknown>>,
    options: unknown,
  ): Results {
    const { id, weights } = this.#mechanism;
    const { inputs, params } = this.#split(options);
    const named = { ...streams, ...this.#weights, ...inputs };
    const request = prepare(this.#registry, id, named, { ...params, ...settled });
    request.plain = request.inputs.every(
      ({ source: { tensor, name } }) =>
        tensor === undefined || name === "headMask" || weights.includes(name),
    );
    return execute(this.#heap, request);
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#free(this.#weights);
  }

  /** Splits the options of `forward` into inputs and params of the mechanism. */
  #split(given: unknown): { inputs: Record<string, unknown>; params: Record<string, unknown> } {
    const { id, streams, weights, settled } = this.#mechanism;
    const { mechanism, params: callParams } = this.#registry.callNames(id);
    const taken = new Set([...streams, ...weights]);
    const inputNames = new Set(
      mechanism.inputs.map(({ name }) => name).filter((name) => !taken.has(name)),
    );
    const paramNames = new Set(callParams);
    for (const name of [...settled, "windowLeft", "windowRight", "layout"]) paramNames.delete(name);
    const options = asRecord("options", given);
    checkNames("options", options, new Set([...inputNames, ...paramNames]));
    const inputs: Record<string, unknown> = {};
    const params: Record<string, unknown> = {};
    for (const [name, value] of Object.entries(options)) {
      (inputNames.has(name) ? inputs : params)[name] = value;
    }
    return { inputs, params };
  }

  #free(weights: Readonly<Record<string, HeapTensor>>): void {
    for (const tensor of Object.values(weights)) tensor.dispose();
  }
}

/** Makes a layer in an instance. */
type LayerClass = new (heap: Heap<KernelGlue>, registry: Registry, options: unknown) => object;

/** The class `Constructor` that an instance shows: it is given the options alone. */
export function layerOf<Constructor>(
  name: string,
  heap: Heap<KernelGlue>,
  registry: Registry,
  layer: LayerClass,
): Constructor {
  return shownClass(name, layer, (options, target) =>
    Reflect.construct(layer, [heap, registry, options], target),
  );
}

Object.defineProperty(Layer.prototype, INTERNAL, {
  value: ["checkUsable", "checkLoaded", "replace", "run"],
});

// Makes `using` work, where the engine knows the symbol: typed by `WithDispose`.
const dispose = (Symbol as { dispose?: symbol }).dispose;
if (dispose !== undefined) {
  Object.defineProperty(Layer.prototype, dispose, { value: Layer.prototype.dispose });
}
