import type { OnlyKnownOf } from "./attention.js";
import { fail, HeedError } from "./errors.js";
import { execute, type Results } from "./execute.js";
import type { KernelGlue, ParamValue } from "./glue.js";
import type { Heap } from "./heap.js";
import { type OwnInput, onlyOwn, prepareAlone } from "./operation.js";
import { contiguousStrides } from "./shape.js";
import { elements, readSource, type Source, type TensorArgument } from "./source.js";
import type { PlainTensor, Tensor } from "./tensor.js";

/** Plain when every argument is, else a Tensor. */
type RowsOf<A> = [Extract<A, Tensor>] extends [never]
  ? PlainTensor<"float32">
  : [Exclude<A, Tensor | undefined>] extends [never]
    ? Tensor<"float32">
    : Tensor<"float32"> | PlainTensor<"float32">;

type Field<O, Name extends string> = O extends { readonly [key in Name]: infer X } ? X : undefined;

export interface SoftmaxOptions {
  /** What is summed over; negative axes count from the end. Default -1. */
  readonly axis?: number | undefined;
}

export interface MaskedSoftmaxOptions {
  /** How many entries of a row count: [batch] or [batch, rows] whole numbers. Default all. */
  readonly lengths?: TensorArgument | undefined;
  /** true = counts; broadcasts to the shape of x, from the right. */
  readonly keep?: TensorArgument | undefined;
}

export interface RmsNormOptions {
  /** Factors, of the extents of x from `axis` on. Default ones. */
  readonly weight?: TensorArgument | undefined;
  /** All axes from this one on are a row; negative axes count from the end. Default -1. */
  readonly axis?: number | undefined;
  /** Added to the mean square; > 0. Default 1e-5. */
  readonly epsilon?: number | undefined;
}

export interface LayerNormOptions extends RmsNormOptions {
  /** Added, of the extents of x from `axis` on. Default zeros. */
  readonly bias?: TensorArgument | undefined;
  /** Returns { output, mean, inverseDeviation } instead of the output alone. */
  readonly returnStatistics?: boolean | undefined;
}

/** What `layerNorm` returns with `returnStatistics`. */
export interface LayerNormResult<R = Tensor<"float32"> | PlainTensor<"float32">> {
  readonly output: R;
  /** Extents of x with 1 from the axis on. */
  readonly mean: R;
  /** 1 / sqrt(variance + epsilon). */
  readonly inverseDeviation: R;
}

type WithStatistics<O, R> = [Field<O, "returnStatistics">] extends [true]
  ? LayerNormResult<R>
  : [Extract<Field<O, "returnStatistics">, true>] extends [never]
    ? R
    : R | LayerNormResult<R>;

/** What `layerNorm` returns for arguments of these types. */
export type LayerNormOf<X, O> = WithStatistics<
  O,
  RowsOf<X | Field<O, "weight"> | Field<O, "bias">>
>;

export interface RowFunctions {
  /** exp(x) / sum exp(x) along an axis of x, rank 1 to 4. Throws HeedError. */
  softmax<const X extends TensorArgument>(x: X, options?: SoftmaxOptions): RowsOf<X>;
  /** log(softmax(x)) = x - log sum exp(x). Throws HeedError. */
  logSoftmax<const X extends TensorArgument>(x: X, options?: SoftmaxOptions): RowsOf<X>;
  /**
   * Softmax of rows [batch, rows, n] (or [batch, n], [batch, heads, rows, n], [n]) over the entries
   * that count; the others are 0 whatever they hold, and a row without entries is all 0. Throws
   * HeedError.
   */
  maskedSoftmax<
    const X extends TensorArgument,
    const O extends MaskedSoftmaxOptions = Record<never, never>,
  >(
    x: X,
    options?: O & OnlyKnownOf<O, MaskedSoftmaxOptions>,
  ): RowsOf<X | Field<O, "lengths"> | Field<O, "keep">>;
  /**
   * (x - mean) / sqrt(variance + epsilon) * weight + bias, over all axes from `axis` on. Throws
   * HeedError.
   */
  layerNorm<
    const X extends TensorArgument,
    const O extends LayerNormOptions = Record<never, never>,
  >(x: X, options?: O & OnlyKnownOf<O, LayerNormOptions>): LayerNormOf<X, O>;
  /** x / sqrt(mean of squares + epsilon) * weight, over all axes from `axis` on. Throws HeedError. */
  rmsNorm<const X extends TensorArgument, const O extends RmsNormOptions = Record<never, never>>(
    x: X,
    options?: O & OnlyKnownOf<O, RmsNormOptions>,
  ): RowsOf<X | Field<O, "weight">>;
}

const SOFTMAX_OPTIONS: ReadonlySet<string> = new Set(["axis"]);
const MASK_OPTIONS: ReadonlySet<string> = new Set(["lengths", "keep"]);
const RMS_OPTIONS: ReadonlySet<string> = new Set(["weight", "axis", "epsilon"]);
const LAYER_OPTIONS: ReadonlySet<string> = new Set([...RMS_OPTIONS, "bias", "returnStatistics"]);

const NUMBERS = { role: "numbers", vector: true } as const;

function readX(value: unknown): Source {
  const x = readSource("x", value, NUMBERS);
  if (x.shape.length < 1 || x.shape.length > 4) fail("shape", "x.shape", x.shape, "rank 1 to 4");
  return x;
}

/** The axis counted from the front. */
function readAxis(value: unknown, rank: number): number {
  if (value === undefined) return rank - 1;
  const expectation = `a whole number from ${-rank} to ${rank - 1}, an axis of x`;
  if (typeof value !== "number") fail("option", "axis", value, expectation);
  if (!Number.isInteger(value) || value < -rank || value >= rank) {
    fail("range", "axis", value, expectation);
  }
  return value < 0 ? value + rank : value;
}

function readEpsilon(value: unknown): number | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== "number") fail("option", "epsilon", value, "a number");
  if (!(value > 0) || !Number.isFinite(value)) {
    fail("range", "epsilon", value, "a finite number > 0");
  }
  return value;
}

/** Factors or sums of a row: what x has from the axis on. */
function readFactors(name: string, value: unknown, x: Source, axis: number): OwnInput[] {
  if (value === undefined) return [];
  const source = readSource(name, value, NUMBERS);
  const wanted = x.shape.slice(axis);
  if (source.shape.join() !== wanted.join()) {
    fail(
      "shape",
      `${name}.shape`,
      source.shape,
      `[${wanted.join(", ")}], as x from axis ${axis} on`,
    );
  }
  return [{ source }];
}

/** [batch] or [batch, rows] numbers of entries. */
function readLengths(value: unknown, x: Source): OwnInput[] {
  if (value === undefined) return [];
  const source = readSource("lengths", value, { role: "lengths", vector: true });
  const rank = x.shape.length;
  const batch = rank > 1 ? (x.shape[0] ?? 1) : 1;
  const rows = rank > 2 ? (x.shape.at(-2) ?? 1) : 1;
  const { shape } = source;
  const fits =
    shape[0] === batch && (shape.length === 1 || (shape.length === 2 && shape[1] === rows));
  if (!fits) {
    fail(
      "shape",
      "lengths.shape",
      shape,
      `[batch] = [${batch}] or [batch, rows] = [${batch}, ${rows}]`,
    );
  }
  const most = x.shape.at(-1) ?? 0;
  elements(source).forEach((length, n) => {
    if (length < 0 || length > most) {
      fail("range", `lengths[${n}]`, length, `0 to the length of a row = ${most}`);
    }
  });
  return [{ source }];
}

/** A mask of the rank of x, with extents of 1 where it has none. */
function readKeep(value: unknown, x: Source): OwnInput[] {
  if (value === undefined) return [];
  const source = readSource("keep", value, { role: "keep", vector: true });
  const missing = x.shape.length - source.shape.length;
  const shape = [...Array.from({ length: Math.max(0, missing) }, () => 1), ...source.shape];
  if (missing < 0 || !shape.every((extent, n) => extent === 1 || extent === x.shape[n])) {
    throw new HeedError(
      "shape",
      `keep: shape [${source.shape.join(", ")}] does not broadcast to that of x = [${x.shape.join(", ")}]`,
    );
  }
  return [{ source, view: { shape, strides: contiguousStrides(shape) } }];
}

/** `heed.softmax` and its relatives. */
export function rowFunctions(heap: Heap<KernelGlue>): RowFunctions {
  type Params = Record<string, ParamValue | undefined>;
  const run = (id: string, inputs: OwnInput[], params: Params): Results =>
    execute(heap, prepareAlone(id, { inputs, params }), "operation");
  const along = (id: string, value: unknown, options: unknown): never => {
    heap.checkUsable();
    const own = onlyOwn(options, SOFTMAX_OPTIONS);
    const x = readX(value);
    return run(id, [{ source: x }], { axis: readAxis(own.axis, x.shape.length) }).output as never;
  };
  const norm = (id: string, value: unknown, own: Record<string, unknown>): Results => {
    const x = readX(value);
    const axis = readAxis(own.axis, x.shape.length);
    const inputs = [
      { source: x },
      ...readFactors("weight", own.weight, x, axis),
      ...readFactors("bias", own.bias, x, axis),
    ];
    const { returnStatistics } = own;
    if (returnStatistics !== undefined && typeof returnStatistics !== "boolean") {
      fail("option", "returnStatistics", returnStatistics, "true or false");
    }
    return run(id, inputs, { axis, epsilon: readEpsilon(own.epsilon), returnStatistics });
  };
  return {
    softmax: (x: unknown, options?: unknown): never => along("softmax", x, options),
    logSoftmax: (x: unknown, options?: unknown): never => along("log_softmax", x, options),
    maskedSoftmax(value: unknown, options?: unknown): never {
      heap.checkUsable();
      const own = onlyOwn(options, MASK_OPTIONS);
      const x = readX(value);
      const inputs = [{ source: x }, ...readLengths(own.lengths, x), ...readKeep(own.keep, x)];
      return run("masked_softmax", inputs, {}).output as never;
    },
    layerNorm(value: unknown, options?: unknown): never {
      heap.checkUsable();
      const results = norm("layer_norm", value, onlyOwn(options, LAYER_OPTIONS));
      return (results.mean === undefined ? results.output : results) as never;
    },
    rmsNorm(value: unknown, options?: unknown): never {
      heap.checkUsable();
      return norm("rms_norm", value, onlyOwn(options, RMS_OPTIONS)).output as never;
    },
  };
}
