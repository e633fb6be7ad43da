import type { DTypeArray } from "./dtype.js";
import { HeedError } from "./errors.js";
import type { KernelGlue, OutputSpec } from "./glue.js";
import { type Heap, Scope } from "./heap.js";
import { placeInputs, type Request } from "./request.js";
import {
  checkBytes,
  contiguousStrides,
  countElements,
  shapeFromHeads,
  viewAsHeads,
} from "./shape.js";
import { HeapTensor, plainTensor } from "./tensor.js";
import { Wire } from "./wire.js";

interface Output {
  name: string;
  /** In the rank and layout of q for "output", else as C++ says. */
  shape: number[];
  pointer: number;
}

/** Results by name; a Tensor or a PlainTensor each. */
export type Results = Record<string, unknown>;

function addOutput(wire: Wire, spec: OutputSpec, request: Request, scope: Scope): Output {
  const { name } = spec;
  const { geometry } = request;
  const like = name === "output" && spec.shape.length === 4 ? geometry : undefined;
  const shape = like ? shapeFromHeads(spec.shape, like.rank, like.layout) : [...spec.shape];
  const pointer = scope.allocate(name, checkBytes(name, shape, "float32"));
  const strides = like ? viewAsHeads(name, shape, like.layout).strides : contiguousStrides(shape);
  wire.add(name, "float32", pointer, spec.shape, strides);
  return { name, shape, pointer };
}

function toResult(output: Output, request: Request, heap: Heap, scope: Scope): unknown {
  const { name, shape, pointer } = output;
  if (!request.plain) {
    scope.keep(pointer);
    return new HeapTensor(heap, pointer, "float32", shape);
  }
  const data = ownFloats(name, countElements(shape));
  data.set(heap.view("float32", pointer, data.length));
  return plainTensor(data, Object.freeze(shape), "float32");
}

// Not a slice of the view: a slice of shared memory would be shared as well.
function ownFloats(name: string, length: number): DTypeArray {
  try {
    return new Float32Array(length);
  } catch (cause) {
    throw new HeedError("memory", `${name}: no room for ${length} numbers in JavaScript`, {
      cause,
    });
  }
}

/** Runs a checked request on the kernels. Frees whatever it allocated, also when it throws. */
export function execute(heap: Heap<KernelGlue>, request: Request): Results {
  const scope = new Scope(heap);
  try {
    const inputs = placeInputs(request, heap, scope);
    const call = [
      request.id,
      inputs.names,
      inputs.table,
      request.paramNames,
      request.paramValues,
    ] as const;
    const specs = heap.callChecked((glue) => glue.planOutputs(...call));
    const wire = new Wire();
    const outputs = specs.map((spec) => addOutput(wire, spec, request, scope));
    heap.callChecked((glue) => glue.run(...call, wire.names, wire.table));
    const results: Results = {};
    for (const output of outputs) {
      results[output.name] = toResult(output, request, heap, scope);
    }
    return results;
  } finally {
    scope.free();
  }
}
