import type { DTypeArray } from "./dtype.js";
import type { ReferenceGlue } from "./glue.js";
import { type Heap, Scope } from "./heap.js";
import { camelCase } from "./registry.js";
import { placeRequest, type Request } from "./request.js";
import { shapeFromHeads } from "./shape.js";
import { type PlainTensor, plainTensor } from "./tensor.js";

/** Results of the float64 oracle; fields are present when they were asked for. */
export interface ReferenceResult {
  readonly output: PlainTensor<"float64">;
  readonly lse?: PlainTensor<"float64">;
  readonly weights?: PlainTensor<"float64">;
  readonly scores?: PlainTensor<"float64">;
  readonly state?: PlainTensor<"float64">;
  readonly residual?: PlainTensor<"float64">;
  readonly projection?: PlainTensor<"float64">;
  readonly runningMax?: PlainTensor<"float64">;
  readonly runningSum?: PlainTensor<"float64">;
  readonly rescale?: PlainTensor<"float64">;
}

/** [batch, len, heads, dim] from [batch, heads, len, dim]. */
function swapHeads(data: ArrayLike<number>, shape: readonly number[]): Float64Array {
  const [batch = 0, heads = 0, len = 0, dim = 0] = shape;
  const out = new Float64Array(data.length);
  let to = 0;
  for (let b = 0; b < batch; b++) {
    for (let i = 0; i < len; i++) {
      for (let h = 0; h < heads; h++) {
        const from = ((b * heads + h) * len + i) * dim;
        for (let d = 0; d < dim; d++) out[to++] = data[from + d] as number;
      }
    }
  }
  return out;
}

/** Runs a checked request on the oracle. */
export function runReference(heap: Heap<ReferenceGlue>, request: Request): ReferenceResult {
  const scope = new Scope(heap);
  try {
    const call = placeRequest(request, heap, scope);
    const rows = heap.callChecked((glue) => glue.run(...call));
    const results: Record<string, PlainTensor<"float64">> = {};
    for (const { name, shape, data } of rows) {
      const like = name === "output" && shape.length === 4 ? request.form : undefined;
      const publicShape = like ? shapeFromHeads(shape, like.rank, like.layout) : shape;
      const swap = like?.rank === 4 && like.layout === "blhd";
      const values: DTypeArray = swap ? swapHeads(data, shape) : data;
      results[camelCase(name)] = plainTensor(values, Object.freeze([...publicShape]), "float64");
    }
    return results as unknown as ReferenceResult;
  } finally {
    scope.free();
  }
}
