import type { OnlyKnownOf, ResultOfKind, TensorKind } from "./attention.js";
import { fail } from "./errors.js";
import { execute, inWordsOfJavaScript } from "./execute.js";
import type { KernelGlue } from "./glue.js";
import type { Heap } from "./heap.js";
import { asRecord, checkNames } from "./option_names.js";
import type { Registry } from "./registry.js";
import { prepare } from "./request.js";
import { checkExtent, type Layout } from "./shape.js";
import type { MatrixArgument, TensorArgument } from "./source.js";
import type { PlainTensor } from "./tensor.js";

/**
 * Which dimensions of a head turn together: t and t + rotaryDim / 2 (GPT-NeoX, Hugging Face), or 2t and
 * 2t + 1 (RoFormer, GPT-J, Meta's Llama). The weights decide; there is no default.
 */
export type RopePairing = "half" | "interleaved";

/** How frequencies change to reach `factor` times beyond the trained length; "none" as without it. */
export type RopeScaling =
  | { readonly type: "none" }
  | { readonly type: "linear" | "ntk"; readonly factor: number }
  | {
      readonly type: "dynamic_ntk";
      readonly factor: number;
      readonly originalLen: number;
      /** The length to scale for; default: the largest position of the call plus 1. */
      readonly seqLen?: number | undefined;
    }
  | {
      readonly type: "yarn";
      readonly factor: number;
      readonly originalLen: number;
      /** Default 32. */
      readonly betaFast?: number | undefined;
      /** Default 1. */
      readonly betaSlow?: number | undefined;
      /** Default 0.1 ln(factor) + 1, and 1 for a factor up to 1. */
      readonly attentionFactor?: number | undefined;
      /** Where the blend begins and ends: at "whole" pairs (default), or "exact" (gpt-oss). */
      readonly bounds?: "whole" | "exact" | undefined;
    }
  | {
      readonly type: "llama3";
      readonly factor: number;
      readonly originalLen: number;
      /** Default 1; at most highFreqFactor. */
      readonly lowFreqFactor?: number | undefined;
      /** Default 4. */
      readonly highFreqFactor?: number | undefined;
    };

/** Where the rows of x stand: row i of batch entry b at offset[b] + positions[b][i]. */
export interface PositionOptions {
  /** Added to every position: a whole number, or one per batch entry. Default 0. */
  readonly offset?: number | readonly number[] | undefined;
  /** [len] or [batch, len] whole numbers; default 0, 1, 2, ... */
  readonly positions?: TensorArgument | undefined;
  /** Order of the extents of an x of rank 4. Default "bhld". */
  readonly layout?: Layout | undefined;
}

interface RotationOptions extends PositionOptions {
  readonly pairing: RopePairing;
  /** Rotated dimensions, the first ones; default all. */
  readonly rotaryDim?: number | undefined;
  /** Default 10000. */
  readonly base?: number | undefined;
  readonly scaling?: RopeScaling | undefined;
  /** Undo the rotation. */
  readonly inverse?: boolean | undefined;
}

/** Options of `heed.rope`. */
export interface RopeOptions extends RotationOptions {
  /** Two-dimensional positions of row-major patches: len = height * width. */
  readonly image?: { readonly height: number; readonly width: number } | undefined;
  /** Tables [rows, rotaryDim / 2] or [batch, rows, rotaryDim / 2] instead of angles, by position. */
  readonly cos?: MatrixArgument | undefined;
  readonly sin?: MatrixArgument | undefined;
}

/** Options of `heed.xpos`. */
export interface XposOptions extends RotationOptions {
  /** Queries shrink with the position, keys grow. */
  readonly side: "query" | "key";
  /** Default 0.4; larger decays less. */
  readonly gamma?: number | undefined;
  /** Default 512: the distance over which a pair shrinks by its zeta once. */
  readonly scaleBase?: number | undefined;
  /** Position where scales are 1; cancels in the product of query and key. Default 0. */
  readonly center?: number | undefined;
}

/** Options of `heed.sinusoidal`. */
export interface SinusoidalOptions {
  /** Position of row 0. Default 0. */
  readonly offset?: number | undefined;
  /** Sines and cosines alternate (the paper), or all sines come first. Default "interleaved". */
  readonly codeLayout?: "interleaved" | "concatenated" | undefined;
  /** Does the last frequency stop short of 1 / base (the paper), or reach it? Default "open". */
  readonly spacing?: "open" | "closed" | undefined;
  /** Default 10000. */
  readonly base?: number | undefined;
}

/** Options of `heed.learnedPosition`. */
export interface LearnedPositionOptions extends PositionOptions {
  /** Stretch the table to the length of x, linearly, instead of looking positions up. */
  readonly interpolate?: boolean | undefined;
}

/** Tensor when any tensor argument is one, else PlainTensor. */
export type PositionResult<X, O> = ResultOfKind<
  | TensorKind<X>
  | (O extends { positions: infer T } ? TensorKind<T> : "plain")
  | (O extends { cos: infer T } ? TensorKind<T> : "plain")
  | (O extends { sin: infer T } ? TensorKind<T> : "plain")
>;

export interface RopeFunction {
  /**
   * Rotary position embedding: turns each pair of dimensions of x by position * base^(-2t / rotaryDim).
   *
   * x [batch, heads, len, dim], [batch, len, dim] or [len, dim], queries or keys. Returns a tensor of
   * the same shape. Angles are computed in float64. Throws HeedError.
   */
  <const X extends MatrixArgument, const O extends RopeOptions>(
    x: X,
    options: O & OnlyKnownOf<O, RopeOptions>,
  ): PositionResult<X, O>;
}

export interface XposFunction {
  /**
   * xPos: RoPE whose pairs also decay with the distance between query and key. Rotate queries with
   * `side: "query"` and keys with `side: "key"`. Shapes as `rope`. Throws HeedError.
   */
  <const X extends MatrixArgument, const O extends XposOptions>(
    x: X,
    options: O & OnlyKnownOf<O, XposOptions>,
  ): PositionResult<X, O>;
}

export interface LearnedPositionFunction {
  /** x + table[position], table [maxLen, dim]. Shapes of x as `rope`. Throws HeedError. */
  <
    const X extends MatrixArgument,
    const T extends MatrixArgument,
    const O extends LearnedPositionOptions = Record<never, never>,
  >(
    x: X,
    table: T,
    options?: O & OnlyKnownOf<O, LearnedPositionOptions>,
  ): ResultOfKind<
    TensorKind<X> | TensorKind<T> | (O extends { positions: infer P } ? TensorKind<P> : "plain")
  >;
}

/** Options of `heed.t5Bucket`. */
export interface T5BucketOptions {
  readonly direction: "bidirectional" | "causal";
  /** Default 32. */
  readonly numBuckets?: number | undefined;
  /** Default 128. */
  readonly maxDistance?: number | undefined;
}

const POSITION_NAMES = ["offset", "positions", "layout"];
const ROTATION_NAMES = [...POSITION_NAMES, "pairing", "rotaryDim", "base", "scaling", "inverse"];

/** The names that the options of each function may have. */
const NAMES: Readonly<Record<string, ReadonlySet<string>>> = {
  rope: new Set([...ROTATION_NAMES, "image", "cos", "sin"]),
  xpos: new Set([...ROTATION_NAMES, "side", "gamma", "scaleBase", "center"]),
  sinusoidal: new Set(["offset", "codeLayout", "spacing", "base"]),
  learned_position: new Set([...POSITION_NAMES, "interpolate"]),
};

const TENSOR_NAMES: ReadonlySet<string> = new Set(["positions", "cos", "sin"]);

/** What `scaling: { ... }` may hold, and the parameter that each name is. */
const SCALING_PARAMS: Readonly<Record<string, string>> = {
  type: "scaling",
  factor: "scalingFactor",
  originalLen: "originalLen",
  seqLen: "seqLen",
  betaFast: "betaFast",
  betaSlow: "betaSlow",
  bounds: "yarnBounds",
  attentionFactor: "attentionFactor",
  lowFreqFactor: "lowFreqFactor",
  highFreqFactor: "highFreqFactor",
};

const IMAGE_PARAMS: Readonly<Record<string, string>> = {
  height: "imageHeight",
  width: "imageWidth",
};

/** How the options of these functions spell a parameter. */
const OPTION_OF: ReadonlyMap<string, string> = new Map([
  ["positionOffset", "offset"],
  ...Object.entries(SCALING_PARAMS).map(([field, param]): [string, string] => [
    param,
    `scaling.${field}`,
  ]),
  ...Object.entries(IMAGE_PARAMS).map(([field, param]): [string, string] => [
    param,
    `image.${field}`,
  ]),
]);

const nameOf = (name: string): string => OPTION_OF.get(name) ?? name;

/** Copies the fields of `options[name]` to the parameters they are. */
function spread(
  name: string,
  value: unknown,
  paramOf: Readonly<Record<string, string>>,
  params: Record<string, unknown>,
): void {
  if (value === undefined) return;
  if (value === null || typeof value !== "object") {
    fail("option", name, value, `{ ${Object.keys(paramOf).join(", ")} }`);
  }
  const fields = asRecord(name, value);
  checkNames(name, fields, new Set(Object.keys(paramOf)));
  for (const field of Object.keys(fields)) params[paramOf[field] as string] = fields[field];
}

/** Adds the parameters that `options[name]`, a RopeScaling, stands for. */
export function addScaling(name: string, value: unknown, params: Record<string, unknown>): void {
  if (value !== undefined && asRecord(name, value).type === undefined) {
    const words = '"none", "linear", "ntk", "dynamic_ntk", "yarn" or "llama3"';
    fail("option", `${name}.type`, undefined, words);
  }
  spread(name, value, SCALING_PARAMS, params);
}

/** The parameters of RopeScaling. */
export const SCALING_NAMES: readonly string[] = Object.values(SCALING_PARAMS);

/** Splits the options of a position function into what `run` calls inputs and params. */
function splitPositionOptions(
  id: string,
  given: unknown,
): { inputs: Record<string, unknown>; params: Record<string, unknown> } {
  const { scaling, image, offset, ...rest } = asRecord("options", given);
  checkNames("options", given ?? {}, NAMES[id] as ReadonlySet<string>);
  const inputs: Record<string, unknown> = {};
  const params: Record<string, unknown> = {};
  for (const name of Object.keys(rest)) {
    (TENSOR_NAMES.has(name) ? inputs : params)[name] = rest[name];
  }
  if (offset !== undefined) params.positionOffset = offset;
  addScaling("scaling", scaling, params);
  spread("image", image, IMAGE_PARAMS, params);
  return { inputs, params };
}

/** Zeros of [len, dim], to which the sinusoidal code is added. */
function emptyTable(len: unknown, dim: unknown): { data: Float32Array; shape: number[] } {
  const shape = [checkExtent("len", len), checkExtent("dim", dim)];
  const elements = (shape[0] as number) * (shape[1] as number);
  if (elements >= 2 ** 30) fail("memory", "len * dim", elements, "a table below 4 GiB");
  return { data: new Float32Array(elements), shape };
}

const T5_NAMES: ReadonlySet<string> = new Set(["direction", "numBuckets", "maxDistance"]);

function checkWhole(argument: string, value: unknown): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value)) {
    fail("range", argument, value, "a whole number within +-(2^53 - 1)");
  }
  return value;
}

/** The checked arguments of the bucket function of C++: position, causal, buckets, distance. */
const T5_WORDS: ReadonlySet<string> = new Set(["num_buckets", "max_distance"]);

function t5Arguments(relativePosition: unknown, given: unknown): [number, boolean, number, number] {
  const options = asRecord("options", given);
  checkNames("options", options, T5_NAMES);
  const { direction, numBuckets = 32, maxDistance = 128 } = options;
  if (direction !== "bidirectional" && direction !== "causal") {
    fail("option", "direction", direction, '"bidirectional" or "causal"; there is no default');
  }
  return [
    checkWhole("relativePosition", relativePosition),
    direction === "causal",
    checkWhole("numBuckets", numBuckets),
    checkWhole("maxDistance", maxDistance),
  ];
}

/** The position functions of an instance. */
export interface PositionFunctions {
  readonly rope: RopeFunction;
  readonly xpos: XposFunction;
  readonly learnedPosition: LearnedPositionFunction;
  /**
   * The sinusoidal position code of Vaswani et al. 2017, [len, dim]: row p has sin(p f_t) and cos(p f_t).
   * `heed.run("sinusoidal", { x })` adds it to an x. Throws HeedError.
   */
  sinusoidal(len: number, dim: number, options?: SinusoidalOptions): PlainTensor<"float32">;
  /**
   * The T5 bucket of a relative position (key minus query): exact nearby, logarithmic up to
   * maxDistance. Throws HeedError.
   */
  t5Bucket(relativePosition: number, options: T5BucketOptions): number;
}

/** Binds the position functions to an instance. */
export function positionsOf(heap: Heap<KernelGlue>, registry: Registry): PositionFunctions {
  const call = (id: string, given: Record<string, unknown>, options: unknown): unknown => {
    heap.checkUsable();
    const { inputs, params } = splitPositionOptions(id, options);
    const request = prepare(registry, id, { ...given, ...inputs }, params, { nameOf });
    return execute(heap, request).output;
  };
  return {
    rope: ((x: unknown, options?: unknown) => call("rope", { x }, options)) as RopeFunction,
    xpos: ((x: unknown, options?: unknown) => call("xpos", { x }, options)) as XposFunction,
    learnedPosition: ((x: unknown, table: unknown, options?: unknown) =>
      call("learned_position", { x, table }, options)) as LearnedPositionFunction,
    sinusoidal: (len, dim, options) => {
      const { offset } = asRecord("options", options);
      if (offset !== undefined && typeof offset !== "number") {
        fail("option", "offset", offset, "a whole number");
      }
      const table = call("sinusoidal", { x: emptyTable(len, dim) }, options);
      return table as PlainTensor<"float32">;
    },
    t5Bucket: (relativePosition, options) => {
      const args = t5Arguments(relativePosition, options);
      return inWordsOfJavaScript({ words: T5_WORDS, nameOf: (name) => name }, () =>
        heap.callChecked((glue) => glue.t5Bucket(...args)),
      );
    },
  };
}
