import type {
  Asked,
  AttentionOptions,
  KindOf,
  OnlyKnown,
  OutputDType,
  ResultOfKind,
  ResultTensor,
  TensorKind,
} from "./attention.js";
import { HeedError } from "./errors.js";
import { addOutput, inWordsOfJavaScript, type Output, type Results, toResult } from "./execute.js";
import type { BackwardPlan, CallArguments, KernelGlue, OutputSpec } from "./glue.js";
import { type Heap, Scope } from "./heap.js";
import type { Build, RunInputs, RunOutput, RunParams, WithAsked } from "./heed.js";
import { asRecord } from "./option_names.js";
import { camelCase, type Registry, snakeCase } from "./registry.js";
import { placeRequest, prepare, type Request } from "./request.js";
import { checkBytes, contiguousStrides, countElements, viewAsHeads } from "./shape.js";
import {
  type MatrixArgument,
  place,
  readSource,
  type Source,
  type TensorArgument,
} from "./source.js";
import { HeapTensor, type PlainTensor, type Tensor, type WithDispose } from "./tensor.js";
import { Wire } from "./wire.js";

/** Options that have a gradient in some module, beside q, k and v. */
type GradientOption =
  | "bias"
  | "distanceBias"
  | "bucketBias"
  | "logGates"
  | "alibiSlopes"
  | "sinks"
  | "width"
  | "temperature"
  | "scoreMatrix"
  | "queryWeight"
  | "keyWeight"
  | "scoreBias"
  | "scoreVector"
  | "relativeKeys"
  | "relativeQueries"
  | "relativeValues"
  | "contentBias"
  | "positionBias"
  | "copeTable";

/** Gradients of q, k, v and of those options that were given as tensors, each shaped as its input. */
export type AttentionGradients<Q, K, V, O, Kind> = {
  readonly q: ResultOfKind<Kind, OutputDType<Q>>;
  readonly k: ResultOfKind<Kind, OutputDType<K>>;
  readonly v: ResultOfKind<Kind, OutputDType<V>>;
} & {
  readonly [key in Extract<keyof O, GradientOption> as O[key] extends number | undefined
    ? never
    : key]: ResultOfKind<Kind>;
};

/** What `heed.attention.vjp` returns: the results of attention, and the way back. */
export type AttentionVjp<Q, K, V, O> = {
  readonly output: ResultTensor<Q, K, V, O, OutputDType<Q>>;
  /**
   * Gradients of sum(gradOutput * output) + sum(gradLse * lse). May be called again. Tensors among
   * the arguments of the call must still hold what they held.
   */
  backward<const G extends MatrixArgument, const L extends TensorArgument = []>(
    gradOutput: G,
    gradLse?: L,
  ): AttentionGradients<Q, K, V, O, KindOf<Q, K, V, O> | TensorKind<G> | TensorKind<L>>;
  /** Frees what backward needs. May be called again. Results live on. */
  dispose(): void;
} & Asked<O, "returnLse", "lse", ResultTensor<Q, K, V, O>> &
  WithDispose;

export interface AttentionVjpFunction {
  /**
   * `heed.attention`, and the gradients of its inputs: q, k, v, bias, distanceBias, bucketBias,
   * logGates, sinks, alibiSlopes, width, temperature and scoreMatrix. HeedError "unsupported" names
   * what has none here: additive scores, relative tables, "cope", kernels other than gaussian,
   * scoreMod and probMod have theirs in "heed/gradients", with those of their tensors. Not in
   * "heed/core".
   */
  <
    const Q extends MatrixArgument,
    const K extends MatrixArgument,
    const V extends MatrixArgument,
    const O extends AttentionOptions = Record<never, never>,
  >(
    q: Q,
    k: K,
    v: V,
    options?: O & OnlyKnown<O>,
  ): AttentionVjp<Q, K, V, O>;
}

/** What `heed.run.vjp` returns. */
export type RunVjp<I = RunInputs> = {
  readonly output: RunOutput<I>;
  readonly lse?: Tensor<"float32"> | PlainTensor<"float32">;
  /** Of recurrent rows with `returnState`. */
  readonly state?: Tensor<"float32"> | PlainTensor<"float32">;
  /**
   * Gradients by the names of the inputs. What arrives at the second result, lse or state, is 0 where it
   * is left out. May be called again.
   */
  backward(
    gradOutput: MatrixArgument,
    gradLseOrState?: TensorArgument,
  ): Readonly<Record<string, Tensor<"float32"> | PlainTensor<"float32">>>;
  dispose(): void;
} & WithDispose;

export interface RunVjpFunction {
  /** `heed.run` with gradients, for mechanisms with the capability "gradient". */
  <const I extends RunInputs, const P extends RunParams = Record<never, never>>(
    id: string,
    inputs: I,
    params?: P,
  ): WithAsked<RunVjp<I>, P>;
}

/** A result of forward that backward reads. */
interface Held {
  spec: OutputSpec;
  strides: readonly number[];
  tensor: HeapTensor;
}

/** Copies a plain source into a tensor of the instance; a Tensor stays what it is. */
function hold(source: Source, heap: Heap, scope: Scope, owned: HeapTensor[]): Source {
  if (source.tensor !== undefined && source.tensor.heap === heap) return source;
  const pointer = place(source, heap, scope);
  scope.keep(pointer);
  const tensor = new HeapTensor(heap, pointer, source.dtype, source.shape);
  owned.push(tensor);
  return { ...source, tensor };
}

/** The output once more, for the caller to keep. */
function copyOf(output: Output, heap: Heap, scope: Scope): Output {
  const { name, shape, dtype } = output;
  const pointer = scope.allocate(name, checkBytes(name, shape, dtype));
  const length = countElements(shape);
  heap.view(dtype, pointer, length).set(heap.view(dtype, output.pointer, length));
  return { ...output, pointer };
}

/** What arrives at a result: of the same shape. */
function readGradient(name: string, value: unknown, of: Held): Source {
  const half = of.spec.name === "output";
  const source = readSource(name, value, { role: "numbers", half });
  const { shape } = of.tensor;
  if (source.shape.length !== shape.length || source.shape.some((n, axis) => n !== shape[axis])) {
    throw new HeedError(
      "shape",
      `${name}: got shape [${source.shape.join(", ")}], expected that of ${of.spec.name}, [${shape.join(", ")}]`,
    );
  }
  return source;
}

/** One forward pass and what backward needs of it. */
class Vjp {
  readonly #heap: Heap<KernelGlue>;
  readonly #request: Request;
  readonly #owned: HeapTensor[] = [];
  readonly #plan: BackwardPlan;
  readonly #held: Held[];
  #disposed = false;

  constructor(heap: Heap<KernelGlue>, request: Request, results: Results, asksLse: boolean) {
    this.#heap = heap;
    const scope = new Scope(heap);
    try {
      const inputs = request.inputs.map(({ source, view }) => ({
        source: hold(source, heap, scope, this.#owned),
        view,
      }));
      this.#request = { ...request, inputs };
      const call = this.#call(scope);
      this.#plan = this.#checked((glue) => glue.planBackward(...call));
      const wire = new Wire();
      const outputs = this.#plan.results.map((spec) => addOutput(wire, spec, request, scope));
      const table = wire.place(heap, scope);
      this.#checked((glue) => glue.runForward(...call, wire.names, table));
      for (const output of outputs) {
        if (output.name === "lse" && !asksLse) continue;
        const copy = request.plain ? output : copyOf(output, heap, scope);
        results[output.name] = toResult(copy, request, heap, scope);
      }
      this.#held = outputs.map((output, n) => this.#keep(output, n, scope));
    } catch (error) {
      this.dispose();
      throw error;
    } finally {
      scope.free();
    }
  }

  backward(gradOutput: unknown, gradLse: unknown, asksLse: boolean): Results {
    if (this.#disposed) {
      throw new HeedError("disposed", "backward: this vjp was disposed of");
    }
    this.#heap.checkUsable();
    const sources = this.#readGradients(gradOutput, gradLse, asksLse);
    const scope = new Scope(this.#heap);
    try {
      const results = new Wire();
      const arriving = new Wire();
      for (const { spec, strides, tensor } of this.#held) {
        results.add(spec.name, spec.dtype, tensor.pointer(spec.name), spec.shape, strides);
        const source = sources.get(spec.name);
        if (source === undefined) continue;
        const pointer = place(source, this.#heap, scope);
        arriving.add(spec.name, source.dtype, pointer, spec.shape, strides);
      }
      const leaving = new Wire();
      const gradients = this.#plan.gradients.map((spec) => this.#place(spec, leaving, scope));
      const wires = [results, arriving, leaving];
      const names = wires.map((wire) => wire.names);
      const tables = wires.map((wire) => wire.place(this.#heap, scope));
      const call = this.#call(scope);
      this.#checked((glue) => glue.runBackward(...call, names, tables));
      const plain = this.#request.plain && [...sources.values()].every(({ tensor }) => !tensor);
      const given: Results = {};
      for (const { output, float16Array } of gradients) {
        given[output.name] = toResult(output, { plain, float16Array }, this.#heap, scope);
      }
      return given;
    } finally {
      scope.free();
    }
  }

  dispose(): void {
    this.#disposed = true;
    for (const tensor of this.#owned) tensor.dispose();
  }

  #checked<T>(work: (glue: KernelGlue) => T) {
    return inWordsOfJavaScript(this.#request, () => this.#heap.callChecked(work));
  }

  /** The inputs live in the instance already: nothing is copied. */
  #call(scope: Scope): CallArguments {
    return placeRequest(this.#request, this.#heap, scope);
  }

  /** A result becomes a tensor of this vjp. */
  #keep(output: Output, n: number, scope: Scope): Held {
    const spec = this.#plan.results[n] as OutputSpec;
    const { shape, dtype, pointer } = output;
    const form = spec.name === "output" ? this.#request.form : undefined;
    const strides = form
      ? viewAsHeads(spec.name, shape, form.layout).strides
      : contiguousStrides(shape);
    scope.keep(pointer);
    const tensor = new HeapTensor(this.#heap, pointer, dtype, shape);
    this.#owned.push(tensor);
    return { spec, strides, tensor };
  }

  #readGradients(gradOutput: unknown, gradOther: unknown, asksLse: boolean): Map<string, Source> {
    const [output, other] = this.#held as [Held, Held?];
    const sources = new Map([["output", readGradient("gradOutput", gradOutput, output)]]);
    if (gradOther === undefined) return sources;
    const name = other?.spec.name;
    if (other === undefined || name === undefined || (name === "lse" && !asksLse)) {
      throw new HeedError(
        "option",
        "gradLse: there is no lse that it could be the gradient of; ask for it with returnLse",
      );
    }
    return sources.set(
      name,
      readGradient(name === "lse" ? "gradLse" : "gradState", gradOther, other),
    );
  }

  /** Room for the gradient of an input, which is laid out as the input is. */
  #place(spec: OutputSpec, wire: Wire, scope: Scope) {
    const input = this.#request.inputs.find(({ source }) => snakeCase(source.name) === spec.name);
    if (input === undefined) throw new HeedError("crashed", `heed: no input "${spec.name}"`);
    const { source, view } = input;
    const name = camelCase(spec.name);
    const shape = [...source.shape];
    const pointer = scope.allocate(name, checkBytes(name, shape, spec.dtype));
    wire.add(spec.name, spec.dtype, pointer, view.shape, view.strides);
    const output: Output = { name, shape, dtype: spec.dtype, pointer };
    return { output, float16Array: source.float16Array === true };
  }
}

const NO_GRADIENT: readonly string[] = ["returnWeights", "returnScores", "returnTiles"];

/** Refuses results that nothing can arrive at. */
function checkHasNone(given: unknown): void {
  const params = asRecord("options", given);
  const asked = NO_GRADIENT.find((name) => params[name] !== undefined && params[name] !== false);
  if (asked === undefined) return;
  throw new HeedError("unsupported", `${asked}: vjp has no gradient of that result; leave it out`);
}

/** Runs a checked request forward and hands out the way back. */
function forward(heap: Heap<KernelGlue>, request: Request, asksLse: boolean): Results {
  const results: Results = {};
  const vjp = new Vjp(heap, request, results, asksLse);
  const dispose = (): void => vjp.dispose();
  results.backward = (gradOutput: unknown, gradLse?: unknown) =>
    vjp.backward(gradOutput, gradLse, asksLse);
  results.dispose = dispose;
  const symbol = (Symbol as { dispose?: symbol }).dispose;
  if (symbol !== undefined) Object.defineProperty(results, symbol, { value: dispose });
  return results;
}

/** `heed.attention.vjp` and `heed.run.vjp` of an instance. */
export function vjpsOf(
  heap: Heap<KernelGlue>,
  registry: Registry,
  build: Build,
  prepareAttention: (q: unknown, k: unknown, v: unknown, options: unknown) => Request,
) {
  const checkHasGradients = (): void => {
    heap.checkUsable();
    if (build !== "core") return;
    throw new HeedError(
      "unsupported",
      'vjp: "heed/core" is a part without gradients, "heed" has them',
    );
  };
  return {
    attention(q: unknown, k: unknown, v: unknown, options?: unknown): Results {
      checkHasGradients();
      const request = prepareAttention(q, k, v, options);
      checkHasNone(options);
      return forward(heap, request, asRecord("options", options).returnLse === true);
    },
    run(id: unknown, inputs: unknown, params?: unknown): Results {
      checkHasGradients();
      const request = prepare(registry, id, inputs, params);
      checkHasNone(params);
      // A row that cannot be asked for its lse returns it anyway.
      const always = !registry.callNames(id).params.has("returnLse");
      return forward(heap, request, always || asRecord("params", params).returnLse === true);
    },
  };
}
