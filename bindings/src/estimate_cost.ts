import { inWordsOfJavaScript } from "./execute.js";
import type { CostEstimate, KernelGlue } from "./glue.js";
import { type Heap, Scope } from "./heap.js";
import type { Registry } from "./registry.js";
import { placeRequest, prepare } from "./request.js";
import type { TensorArgument } from "./source.js";

export type { CostEstimate } from "./glue.js";

export interface EstimateCostFunction {
  /**
   * What `heed.run(id, inputs, params)` would read, write, multiply and allocate on this instance's
   * threads, without running it. Plain inputs are copied into the module for the question; nothing of
   * the size of a result is allocated. Rules that hide single keys are asked about each of them.
   * Throws HeedError for whatever `run` would refuse.
   */
  (
    id: string,
    inputs: Readonly<Record<string, TensorArgument | undefined>>,
    params?: Readonly<Record<string, unknown>>,
  ): CostEstimate;
}

/** `heed.estimateCost` of an instance. */
export const estimateCostOf =
  (heap: Heap<KernelGlue>, registry: Registry, threads: number): EstimateCostFunction =>
  (id, inputs, params) => {
    heap.checkUsable();
    const request = prepare(registry, id, inputs, params);
    const scope = new Scope(heap);
    try {
      const call = placeRequest(request, heap, scope);
      return inWordsOfJavaScript(request, () =>
        heap.callChecked((glue) => glue.estimateCost(...call, threads)),
      );
    } finally {
      scope.free();
    }
  };
