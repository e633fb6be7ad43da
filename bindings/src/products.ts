import { fail, HeedError } from "./errors.js";
import { execute } from "./execute.js";
import type { KernelGlue } from "./glue.js";
import type { Heap } from "./heap.js";
import { type OwnInput, onlyOwn, prepareAlone, readNumbers } from "./operation.js";
import { type MatrixArgument, readSource, type Source, type TensorArgument } from "./source.js";
import type { PlainTensor, Tensor } from "./tensor.js";

type Product = Tensor<"float32"> | PlainTensor<"float32">;

/** Plain when every argument is, else a Tensor. */
type ProductOf<A, B, C = undefined> = [Extract<A | B | C, Tensor>] extends [never]
  ? PlainTensor<"float32">
  : [Exclude<A | B | C, Tensor | undefined>] extends [never]
    ? Tensor<"float32">
    : Product;

export interface BmmOptions {
  /** Multiplies by the transpose of b's last two extents: [..., n, k]. */
  readonly transposeB?: boolean | undefined;
}

export interface ProductFunctions {
  /**
   * x weight^T + bias: x [..., in_dim] of rank 2 to 4, weight [out_dim, in_dim] (PyTorch's layout),
   * bias [out_dim] -> [..., out_dim]. Throws HeedError.
   */
  linear<
    const X extends MatrixArgument,
    const W extends MatrixArgument,
    const B extends TensorArgument | undefined = undefined,
  >(x: X, weight: W, bias?: B): ProductOf<X, W, B>;
  /**
   * Products of batches of matrices: a [batch, heads, m, k], b [batch, heads, k, n] ->
   * [batch, heads, m, n]. Ranks 2 to 4; batch and heads of 1 or missing broadcast. Throws HeedError.
   */
  bmm<const A extends MatrixArgument, const B extends MatrixArgument>(
    a: A,
    b: B,
    options?: BmmOptions,
  ): ProductOf<A, B>;
}

const BMM_OPTIONS: ReadonlySet<string> = new Set(["transposeB"]);

function readMatrix(name: string, value: unknown, most = 4): Source {
  const source = readNumbers(name, value);
  const rank = source.shape.length;
  if (rank < 2 || rank > most) {
    const wanted = most === 2 ? "rank 2" : `rank 2 to ${most}`;
    throw new HeedError(
      "shape",
      `${name}: got shape [${source.shape.join(", ")}], expected ${wanted}`,
    );
  }
  return source;
}

function checkInner(a: number | undefined, b: number | undefined, first: string, second: string) {
  if (a === b) return;
  throw new HeedError(
    "shape",
    `${second}: got an inner extent of ${b}, expected that of ${first} = ${a}`,
  );
}

/** Extents before the last two, from the right, must be equal or 1. */
function checkBroadcast(a: Source, b: Source): void {
  for (let axis = 3; axis <= 4; axis++) {
    const [m, n] = [a.shape.at(-axis) ?? 1, b.shape.at(-axis) ?? 1];
    if (m === n || m === 1 || n === 1) continue;
    fail("shape", "b", b.shape, `${axis === 3 ? "heads" : "batch"} of ${m} as in a, or 1`);
  }
}

/** `heed.linear` and `heed.bmm`. */
export function productFunctions(heap: Heap<KernelGlue>): ProductFunctions {
  const run = (id: string, sources: readonly Source[], params = {}): never => {
    const inputs: OwnInput[] = sources.map((source) => ({ source }));
    return execute(heap, prepareAlone(id, { inputs, params }), "operation").output as never;
  };
  return {
    linear(x: unknown, weight: unknown, bias?: unknown): never {
      heap.checkUsable();
      const sources = [readMatrix("x", x), readMatrix("weight", weight, 2)];
      const [first, second] = sources as [Source, Source];
      checkInner(first.shape.at(-1), second.shape[1], "x", "weight");
      if (bias !== undefined) {
        const added = readSource("bias", bias, { role: "numbers", vector: true });
        if (added.shape.length !== 1 || added.shape[0] !== second.shape[0]) {
          fail("shape", "bias", added.shape, `[out_dim] = [${second.shape[0]}]`);
        }
        sources.push(added);
      }
      return run("linear", sources);
    },
    bmm(a: unknown, b: unknown, options?: unknown): never {
      heap.checkUsable();
      const { transposeB = false } = onlyOwn(options, BMM_OPTIONS);
      if (typeof transposeB !== "boolean")
        fail("option", "transposeB", transposeB, "true or false");
      const [first, second] = [readMatrix("a", a), readMatrix("b", b)];
      checkInner(first.shape.at(-1), second.shape.at(transposeB ? -1 : -2), "a", "b");
      checkBroadcast(first, second);
      return run("bmm", [first, second], { transposeB });
    },
  };
}
