import { DTYPE_NAMES, type DType, type DTypeArray, makeArray } from "./dtype.js";
import { HeedError } from "./errors.js";
import type { KernelGlue, OutputSpec } from "./glue.js";
import { type Heap, Scope } from "./heap.js";
import { camelCase } from "./registry.js";
import { placeRequest, type Request } from "./request.js";
import {
  checkBytes,
  contiguousStrides,
  countElements,
  shapeFromHeads,
  viewAsHeads,
} from "./shape.js";
import { HeapTensor, plainTensor } from "./tensor.js";
import type { Wire } from "./wire.js";

export interface Output {
  name: string;
  /** In the rank and layout of q or x for "output", else as C++ says. */
  shape: number[];
  dtype: DType;
  pointer: number;
}

/** Results by name; a Tensor or a PlainTensor each. */
export type Results = Record<string, unknown>;

export function addOutput(
  wire: Wire,
  spec: OutputSpec,
  request: Pick<Request, "form">,
  scope: Scope,
): Output {
  const { name, dtype } = spec;
  const like = name === "output" && spec.shape.length === 4 ? request.form : undefined;
  const shape = like ? shapeFromHeads(spec.shape, like.rank, like.layout) : [...spec.shape];
  const pointer = scope.allocate(name, checkBytes(name, shape, dtype));
  const strides = like ? viewAsHeads(name, shape, like.layout).strides : contiguousStrides(shape);
  wire.add(name, dtype, pointer, spec.shape, strides);
  return { name, shape, dtype, pointer };
}

/** Reads what bindings/embind/results.h writes; the scope takes the memory over. */
function readOutputs(text: string, { form }: Pick<Request, "form">, scope: Scope): Output[] {
  if (text === "") return [];
  return text.split(";").map((row) => {
    const [name = "", ...words] = row.split(" ");
    const [code, pointer = 0, ...extents] = words.map(Number);
    scope.adopt(pointer);
    const like = name === "output" && extents.length === 4 ? form : undefined;
    const shape = like ? shapeFromHeads(extents, like.rank, like.layout) : extents;
    return { name, shape, dtype: DTYPE_NAMES[code as number] as DType, pointer };
  });
}

export function toResult(
  output: Output,
  request: Pick<Request, "plain" | "float16Array">,
  heap: Heap,
  scope: Scope,
): unknown {
  const { name, shape, dtype, pointer } = output;
  const float16Array = dtype === "float16" && request.float16Array;
  if (!request.plain) {
    scope.keep(pointer);
    return new HeapTensor(heap, pointer, dtype, shape, float16Array);
  }
  const data = ownArray(name, dtype, countElements(shape));
  data.set(heap.view(dtype, pointer, data.length));
  return plainTensor(data, Object.freeze(shape), dtype, float16Array);
}

// Not a slice of the view: a slice of shared memory would be shared as well.
function ownArray(name: string, dtype: DType, length: number): DTypeArray {
  try {
    return makeArray(dtype, length);
  } catch (cause) {
    throw new HeedError("memory", `${name}: no room for ${length} numbers in JavaScript`, {
      cause,
    });
  }
}

/** Which words of C++ are names, and how the caller spells them. */
export interface Spelling {
  readonly words: Pick<ReadonlySet<string>, "has">;
  readonly nameOf: (name: string) => string;
}

/**
 * Refusals of C++ name arguments in its own spelling; callers know the one of JavaScript. What is
 * quoted, or stands behind a dot, is the caller's own word.
 */
export function inWordsOfJavaScript<T>({ words, nameOf }: Spelling, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof HeedError)) throw error;
    const message = error.message.replaceAll(/(?<![.`"\w])[a-z]+(?:_[a-z0-9]+)+\b/g, (word) =>
      words.has(word) ? nameOf(camelCase(word)) : word,
    );
    if (message === error.message) throw error;
    throw new HeedError(error.code, message, { cause: error.cause });
  }
}

/** Whether a request's id is that of a mechanism or of an operation around them. */
export type Kind = "mechanism" | "operation";

/**
 * Runs a checked request on the kernels. Frees whatever it allocated, also when it throws. Results
 * are called what JavaScript calls them: `topWeights` for top_weights.
 */
export function execute(
  heap: Heap<KernelGlue>,
  request: Request,
  kind: Kind = "mechanism",
): Results {
  const scope = new Scope(heap);
  try {
    const call = placeRequest(request, heap, scope);
    const { form } = request;
    const headsLast = form?.rank === 4 && form.layout === "blhd";
    const text = inWordsOfJavaScript(request, () =>
      heap.callChecked((glue) =>
        kind === "mechanism" ? glue.run(...call, headsLast) : glue.runOperation(...call, headsLast),
      ),
    );
    const outputs = readOutputs(text, request, scope);
    const results: Results = {};
    for (const output of outputs) {
      results[camelCase(output.name)] = toResult(output, request, heap, scope);
    }
    return results;
  } finally {
    scope.free();
  }
}
