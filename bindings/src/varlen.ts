import type { OnlyKnownOf, OutputDType, QueryOffset, Window } from "./attention.js";
import { fail, HeedError } from "./errors.js";
import { addOutput, inWordsOfJavaScript, toResult } from "./execute.js";
import type { KernelGlue, ParamValue } from "./glue.js";
import { type Heap, Scope } from "./heap.js";
import { asRecord, checkNames } from "./option_names.js";
import { checkParam, expandWindow, publicName } from "./params.js";
import { type Registry, snakeCase } from "./registry.js";
import { contiguousStrides, type View4 } from "./shape.js";
import {
  elements,
  type MatrixArgument,
  place,
  readSource,
  type Source,
  type TensorArgument,
} from "./source.js";
import type { PlainTensor, Tensor } from "./tensor.js";
import { Wire } from "./wire.js";

/** Options of `heed.attentionVarlen`: each within its sequence. */
export interface VarlenOptions {
  /** n + 1 offsets of n sequences: the queries of sequence s are [cuSeqlensQ[s], cuSeqlensQ[s + 1]). */
  readonly cuSeqlensQ: TensorArgument | Int32Array | readonly number[];
  /** The same for keys and values; default cuSeqlensQ. */
  readonly cuSeqlensK?: TensorArgument | Int32Array | readonly number[] | undefined;
  readonly scale?: number | undefined;
  readonly softcap?: number | undefined;
  readonly causal?: boolean | undefined;
  readonly window?: Window | undefined;
  /** One number for all sequences, one per sequence, or "end". */
  readonly queryOffset?: QueryOffset | undefined;
  /** [num_heads] logits inside the softmax denominator. */
  readonly sinks?: TensorArgument | undefined;
  readonly alibiSlopes?: TensorArgument | undefined;
  /** Also return the log of the denominator, [num_heads, total_q]. */
  readonly returnLse?: boolean | undefined;
}

type VarlenTensor<T, D extends "float32" | "float16" | "bfloat16"> = [T] extends [Tensor]
  ? Tensor<D>
  : [Extract<T, Tensor>] extends [never]
    ? PlainTensor<D>
    : Tensor<D> | PlainTensor<D>;

/** Results are Tensors when q is one. */
export type VarlenResult<Q, O> = {
  /** [total_q, num_heads, head_dim_v], in the element type of q. */
  readonly output: VarlenTensor<Q, OutputDType<Q>>;
} & (O extends { readonly returnLse: true }
  ? { readonly lse: VarlenTensor<Q, "float32"> }
  : { readonly lse?: VarlenTensor<Q, "float32"> });

export interface VarlenFunction {
  /**
   * Exact attention within each of many sequences that are packed one after the other, without
   * padding: q [total_q, num_heads, head_dim], k and v [total_kv, num_kv_heads, ...].
   */
  <const Q extends MatrixArgument, const O extends VarlenOptions>(
    q: Q,
    k: MatrixArgument,
    v: MatrixArgument,
    options: O & OnlyKnownOf<O, VarlenOptions>,
  ): VarlenResult<Q, O>;
}

const PARAMS = ["scale", "softcap", "causal", "windowLeft", "windowRight", "queryOffset"] as const;
const VECTORS = ["sinks", "alibiSlopes"] as const;
const NAMES: ReadonlySet<string> = new Set([
  ...PARAMS.filter((name) => !name.startsWith("window")),
  ...VECTORS,
  "window",
  "cuSeqlensQ",
  "cuSeqlensK",
  "returnLse",
]);

/** What refusals of C++ may name. */
const WORDS: ReadonlySet<string> = new Set(
  [...PARAMS, ...VECTORS, "cuSeqlensQ", "cuSeqlensK"].map(snakeCase),
);

/** [total, heads, dim] seen as [1, heads, total, dim]. */
function viewPacked({ name, shape }: Source): View4 {
  if (shape.length !== 3) {
    fail(
      "shape",
      `${name}.shape`,
      [...shape],
      "[total, heads, dim]: sequences one after the other",
    );
  }
  const [total = 0, heads = 0, dim = 0] = shape;
  return { shape: [1, heads, total, dim], strides: [total * heads * dim, dim, heads * dim, 1] };
}

function readOffsets(name: string, value: unknown, total: number): Source {
  if (value === undefined) {
    throw new HeedError("option", `${name}: missing, offsets of the sequences are needed`);
  }
  const source = readSource(name, value, { role: "lengths", vector: true });
  if (source.shape.length !== 1 || source.shape[0] === 0) {
    fail("shape", `${name}.shape`, [...source.shape], "[number of sequences + 1]");
  }
  const offsets = elements(source);
  for (let s = 0; s < offsets.length; s++) {
    const offset = offsets[s] as number;
    const least = s === 0 ? 0 : (offsets[s - 1] as number);
    const most = s === 0 ? 0 : total;
    if (offset >= least && offset <= most) continue;
    fail(
      "range",
      `${name}[${s}]`,
      offset,
      `${least} to ${most}: offsets begin at 0 and never fall`,
    );
  }
  return source;
}

interface Input {
  name: string;
  source: Source;
  view: View4;
}

function readTensors(q: unknown, k: unknown, v: unknown): Input[] {
  const stored = { role: "numbers", half: true } as const;
  const sources = [
    readSource("q", q, stored),
    readSource("k", k, stored),
    readSource("v", v, stored),
  ];
  const inputs = sources.map((source) => ({ name: source.name, source, view: viewPacked(source) }));
  const [qShape = [], kShape = [], vShape = []] = inputs.map(({ view }) => view.shape);
  const [, heads = 0, , dim = 0] = qShape;
  const [, kvHeads = 0, total = 0, kDim = 0] = kShape;
  if (kDim !== dim)
    fail("shape", "k.shape", [...(sources[1] as Source).shape], `head_dim ${dim} of q`);
  if (vShape[1] !== kvHeads || vShape[2] !== total) {
    fail("shape", "v.shape", [...(sources[2] as Source).shape], `[${total}, ${kvHeads}, ...] as k`);
  }
  if (kvHeads === 0 ? heads !== 0 : heads % kvHeads !== 0) {
    throw new HeedError(
      "shape",
      `q: ${heads} heads are not a multiple of the ${kvHeads} of k and v`,
    );
  }
  return inputs;
}

const flat = (source: Source): View4 => ({
  shape: [...source.shape],
  strides: contiguousStrides(source.shape),
});

function readParams(
  registry: Registry,
  options: Record<string, unknown>,
  sequences: number,
): Map<string, ParamValue> {
  const given = expandWindow(options);
  const params = new Map<string, ParamValue>();
  for (const name of PARAMS) {
    const value = given[name];
    if (value === undefined) continue;
    params.set(name, checkParam(registry.parameter(name), publicName(name), value));
  }
  const offset = params.get("queryOffset");
  if (Array.isArray(offset) && offset.length !== sequences) {
    throw new HeedError(
      "shape",
      `queryOffset: got ${offset.length} numbers, expected one per sequence = ${sequences}`,
    );
  }
  return params;
}

function readVectors(options: Record<string, unknown>, heads: number): Input[] {
  const inputs: Input[] = [];
  for (const name of VECTORS) {
    if (options[name] === undefined) continue;
    const source = readSource(name, options[name], { role: "numbers", vector: true });
    if (source.shape.length !== 1 || source.shape[0] !== heads) {
      fail("shape", `${name}.shape`, [...source.shape], `[num_heads] = [${heads}]`);
    }
    inputs.push({ name: snakeCase(name), source, view: flat(source) });
  }
  return inputs;
}

/** The function behind `heed.attentionVarlen` of an instance. */
export function varlenOf(heap: Heap<KernelGlue>, registry: Registry): VarlenFunction {
  const run = (q: unknown, k: unknown, v: unknown, given: unknown): unknown => {
    heap.checkUsable();
    const options = asRecord("options", given);
    checkNames("options", options, NAMES);
    const tensors = readTensors(q, k, v);
    const [qView, kView, vView] = tensors.map(({ view }) => view) as [View4, View4, View4];
    const [, heads = 0, totalQ = 0] = qView.shape;
    const totalKv = kView.shape[2] as number;
    const headDimV = vView.shape[3] as number;
    const cuSeqlensQ = readOffsets("cuSeqlensQ", options.cuSeqlensQ, totalQ);
    const cuSeqlensK =
      options.cuSeqlensK === undefined
        ? readOffsets("cuSeqlensQ", options.cuSeqlensQ, Math.min(totalQ, totalKv))
        : readOffsets("cuSeqlensK", options.cuSeqlensK, totalKv);
    if (cuSeqlensQ.shape[0] !== cuSeqlensK.shape[0]) {
      throw new HeedError(
        "shape",
        `cuSeqlensK: got ${cuSeqlensK.shape[0]} offsets, expected ${cuSeqlensQ.shape[0]} as cuSeqlensQ`,
      );
    }
    const params = readParams(registry, options, (cuSeqlensQ.shape[0] as number) - 1);
    const { returnLse = false } = options;
    if (typeof returnLse !== "boolean") fail("option", "returnLse", returnLse, "true or false");
    const inputs = [
      ...tensors,
      ...readVectors(options, heads),
      { name: "cu_seqlens_q", source: cuSeqlensQ, view: flat(cuSeqlensQ) },
      { name: "cu_seqlens_k", source: cuSeqlensK, view: flat(cuSeqlensK) },
    ];
    const [first] = tensors as [Input, Input, Input];
    const dtype = first.source.dtype as "float32" | "float16" | "bfloat16";
    const scope = new Scope(heap);
    try {
      const wire = new Wire();
      for (const { name, source, view } of inputs) {
        wire.add(name, source.dtype, place(source, heap, scope), view.shape, view.strides);
      }
      // [1, num_heads, total_q, head_dim_v] to C++; the caller's order is that of "blhd".
      const form = { rank: 4, layout: "blhd" as const };
      const shape = [1, heads, totalQ, headDimV];
      const specs = [{ name: "output", shape, dtype }];
      if (returnLse) specs.push({ name: "lse", shape: [1, heads, totalQ], dtype: "float32" });
      const outputs = specs.map((spec) => addOutput(wire, spec, { form }, scope));
      const names = [...params.keys()].map(snakeCase).join(" ");
      const table = wire.place(heap, scope);
      inWordsOfJavaScript({ words: WORDS, nameOf: publicName }, () =>
        heap.callChecked((glue) =>
          glue.attentionVarlen(wire.names, table, names, [...params.values()]),
        ),
      );
      const plain = inputs.every(({ source }) => source.tensor === undefined);
      const kind = { plain, float16Array: first.source.float16Array === true };
      // Without the batch of one.
      return Object.fromEntries(
        outputs.map((output) => {
          const packed = { ...output, shape: output.shape.slice(1) };
          return [output.name, toResult(packed, kind, heap, scope)];
        }),
      );
    } finally {
      scope.free();
    }
  };
  return run as unknown as VarlenFunction;
}
