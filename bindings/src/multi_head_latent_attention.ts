import type { AttentionOptions, AttentionResult, OnlyKnownOf } from "./attention.js";
import { fail, HeedError } from "./errors.js";
import type { KernelGlue } from "./glue.js";
import type { Heap } from "./heap.js";
import {
  checkLastExtent,
  Layer,
  type LayerMechanism,
  LayerOptions,
  layerOf,
  readWeights,
  type Weight,
  type WeightShapes,
} from "./layer.js";
import { addScaling, type RopeScaling, SCALING_NAMES } from "./position.js";
import type { Registry } from "./registry.js";
import type { MatrixArgument } from "./source.js";
import { type LoadStateOptions, readState, type StateDict } from "./state_dict.js";
import type { WithDispose } from "./tensor.js";
import type { SelfAttentionOptions } from "./transformer_block.js";

/** Sizes and parts of a layer; DeepSeek's names are in brackets. */
export interface MultiHeadLatentAttentionOptions {
  /** Of the rows that go in and out (hidden_size). */
  readonly embedDim: number;
  readonly numHeads: number;
  /** Of the compressed queries (q_lora_rank); left out, queries come from x itself (V2-Lite). */
  readonly qRank?: number | undefined;
  /** Of the latent row that a cache holds per token (kv_lora_rank). */
  readonly kvRank: number;
  /** Of each head without position (qk_nope_head_dim). */
  readonly nopeDim: number;
  /** Of the rotated part (qk_rope_head_dim); even unless `rope` is "none". */
  readonly ropeDim: number;
  /** Of the values (v_head_dim); default nopeDim. */
  readonly headDimV?: number | undefined;
  /** Which dimensions turn together; the weights decide. DeepSeek's published code: "interleaved". */
  readonly rope: "half" | "interleaved" | "none";
  /** Of the rotation, > 1 (rope_theta). Default 10000. */
  readonly ropeBase?: number | undefined;
  /**
   * How frequencies change to reach beyond the trained length; default not at all. The scale is
   * `forward`'s: DeepSeek's YaRN asks for `attentionFactor: 1` and a larger one.
   */
  readonly ropeScaling?: RopeScaling | undefined;
  /** RMS norms behind the two compressions. Default true. */
  readonly norms?: boolean | undefined;
  /** Added to the mean square inside the norms; > 0. Default 1e-6. */
  readonly epsilon?: number | undefined;
  /**
   * "naive" forms keys and values of every head, "absorbed" lets the heads attend to the latent rows
   * themselves; both compute the same. Default "naive".
   */
  readonly form?: "naive" | "absorbed" | undefined;
}

type MaybeAbsent = "qRank" | "ropeScaling";

/** The options of a layer with their defaults; `qRank` and `ropeScaling` where they were given. */
export type MultiHeadLatentAttentionSizes = {
  readonly [K in Exclude<keyof MultiHeadLatentAttentionOptions, MaybeAbsent>]-?: NonNullable<
    MultiHeadLatentAttentionOptions[K]
  >;
} & Pick<MultiHeadLatentAttentionOptions, MaybeAbsent>;

/** Options of `forward`. */
export interface LatentForwardOptions
  extends Omit<SelfAttentionOptions, "headMask">,
    Pick<AttentionOptions, "returnWeights" | "returnLse"> {}

/** A latent attention layer with its weights in the memory of the instance. */
export interface MultiHeadLatentAttentionMembers {
  readonly options: MultiHeadLatentAttentionSizes;
  readonly disposed: boolean;
  /**
   * Loads weights by the names and shapes of DeepSeek-V2's published attention: q_a_proj.weight
   * [q_rank, embed_dim], q_a_layernorm.weight, q_b_proj.weight [heads * (nope_dim + rope_dim), q_rank],
   * kv_a_proj_with_mqa.weight [kv_rank + rope_dim, embed_dim], kv_a_layernorm.weight, kv_b_proj.weight
   * [heads * (nope_dim + head_dim_v), kv_rank], o_proj.weight [embed_dim, heads * head_dim_v]. Without
   * qRank q_proj.weight [heads * (nope_dim + rope_dim), embed_dim] is there instead of the three of q.
   * Every name must be there; on error the weights are as before.
   */
  loadStateDict(state: StateDict, options?: LoadStateOptions): void;
  /**
   * Loads weights by the names of the mechanism `multi_head_latent`: wDq [q_rank, embed_dim], wUq
   * [num_heads, nope_dim, q_rank], wQr [num_heads, rope_dim, q_rank], wDkv [kv_rank, embed_dim], wKr
   * [rope_dim, embed_dim], wUk [num_heads, nope_dim, kv_rank], wUv [num_heads, head_dim_v, kv_rank],
   * wO [embed_dim, num_heads, head_dim_v], and with norms normQWeight [q_rank], normKvWeight [kv_rank].
   * Without qRank wDq and normQWeight are left out, and q_rank is embed_dim.
   */
  loadWeights(weights: StateDict, options?: LoadStateOptions): void;
  /**
   * x [batch, len, embedDim] -> output of the same shape, lse [batch, heads, len] and weights
   * [batch, heads, len, len] when asked for. The scale defaults to 1 / sqrt(nopeDim + ropeDim).
   * Results are plain unless an argument is a Tensor. Throws HeedError.
   */
  forward<
    const X extends MatrixArgument,
    const O extends LatentForwardOptions = Record<never, never>,
  >(x: X, options?: O & OnlyKnownOf<O, LatentForwardOptions>): AttentionResult<X, X, X, O>;
  /** Frees the weights. May be called again. */
  dispose(): void;
}

export type MultiHeadLatentAttention = MultiHeadLatentAttentionMembers & WithDispose;

/** `heed.MultiHeadLatentAttention`: makes layers in that instance. */
export interface MultiHeadLatentAttentionConstructor {
  new (options: MultiHeadLatentAttentionOptions): MultiHeadLatentAttention;
}

const OPTION_NAMES = [
  ..."embedDim numHeads qRank kvRank nopeDim ropeDim headDimV".split(" "),
  ..."rope ropeBase ropeScaling norms epsilon form".split(" "),
];
const ROPES = ["half", "interleaved", "none"] as const;

const MECHANISM: LayerMechanism = {
  id: "multi_head_latent",
  streams: ["x"],
  weights: "wDq wUq wQr wDkv wKr wUk wUv wO normQWeight normKvWeight".split(" "),
  settled: ["form", "rope", "ropeBase", ...SCALING_NAMES, "epsilon"],
  loaders: "loadStateDict() or loadWeights()",
};

type Sizes = MultiHeadLatentAttentionSizes;

function readSizes(given: unknown): Sizes {
  const options = new LayerOptions(given, OPTION_NAMES);
  if (!options.has("rope")) {
    throw new HeedError(
      "option",
      'rope: missing, expected "half", "interleaved" or "none"; there is no default, the weights decide',
    );
  }
  const rope = options.word("rope", ROPES, "none");
  const ropeDim = options.count("ropeDim");
  if (rope !== "none" && ropeDim % 2 !== 0) {
    fail("range", "ropeDim", ropeDim, "an even number: dimensions turn in pairs");
  }
  if (rope === "none" && options.has("ropeScaling")) {
    throw new HeedError(
      "option",
      'ropeScaling: given with rope "none", which has no rotation to scale',
    );
  }
  const ropeScaling = options.record("ropeScaling") as RopeScaling | undefined;
  addScaling("ropeScaling", ropeScaling, {}); // refuses what it does not know
  const nopeDim = options.count("nopeDim");
  return {
    embedDim: options.count("embedDim"),
    numHeads: options.count("numHeads"),
    qRank: options.has("qRank") ? options.count("qRank") : undefined,
    kvRank: options.count("kvRank"),
    nopeDim,
    ropeDim,
    headDimV: options.count("headDimV", nopeDim),
    rope,
    ropeBase: options.number("ropeBase", 10000, 1),
    ropeScaling,
    norms: options.flag("norms", true),
    epsilon: options.number("epsilon", 1e-6, 0),
    form: options.word("form", ["naive", "absorbed"], "naive"),
  };
}

/** How wide the rows are that queries are made of. */
const queryWidth = (s: Sizes): number => s.qRank ?? s.embedDim;

function weightShapes(s: Sizes): WeightShapes {
  const width = queryWidth(s);
  const shapes = new Map<string, readonly number[]>([
    ["wUq", [s.numHeads, s.nopeDim, width]],
    ["wQr", [s.numHeads, s.ropeDim, width]],
    ["wDkv", [s.kvRank, s.embedDim]],
    ["wKr", [s.ropeDim, s.embedDim]],
    ["wUk", [s.numHeads, s.nopeDim, s.kvRank]],
    ["wUv", [s.numHeads, s.headDimV, s.kvRank]],
    ["wO", [s.embedDim, s.numHeads, s.headDimV]],
  ]);
  if (s.qRank !== undefined) shapes.set("wDq", [s.qRank, s.embedDim]);
  if (s.norms && s.qRank !== undefined) shapes.set("normQWeight", [s.qRank]);
  return s.norms ? shapes.set("normKvWeight", [s.kvRank]) : shapes;
}

function deepseekShapes(s: Sizes): WeightShapes {
  const shapes = new Map<string, readonly number[]>([
    [`${queriesName(s)}.weight`, [s.numHeads * (s.nopeDim + s.ropeDim), queryWidth(s)]],
    ["kv_a_proj_with_mqa.weight", [s.kvRank + s.ropeDim, s.embedDim]],
    ["kv_b_proj.weight", [s.numHeads * (s.nopeDim + s.headDimV), s.kvRank]],
    ["o_proj.weight", [s.embedDim, s.numHeads * s.headDimV]],
  ]);
  if (s.qRank !== undefined) shapes.set("q_a_proj.weight", [s.qRank, s.embedDim]);
  if (s.norms && s.qRank !== undefined) shapes.set("q_a_layernorm.weight", [s.qRank]);
  return s.norms ? shapes.set("kv_a_layernorm.weight", [s.kvRank]) : shapes;
}

const queriesName = (s: Sizes): string => (s.qRank === undefined ? "q_proj" : "q_b_proj");

/** Divides `groups` runs of rows into the first `first` rows of each and the rest. */
function divide(
  matrix: Float32Array,
  groups: number,
  first: number,
  width: number,
): [first: Float32Array, rest: Float32Array] {
  const run = matrix.length / groups;
  const cut = first * width;
  const heads = new Float32Array(groups * cut);
  const tails = new Float32Array(matrix.length - heads.length);
  for (let group = 0; group < groups; group++) {
    const rows = matrix.subarray(group * run, (group + 1) * run);
    heads.set(rows.subarray(0, cut), group * cut);
    tails.set(rows.subarray(cut), group * (run - cut));
  }
  return [heads, tails];
}

function fromDeepseek(s: Sizes, state: ReadonlyMap<string, Float32Array>): Weight[] {
  const get = (name: string): Float32Array => state.get(`${name}.weight`) as Float32Array;
  const [wUq, wQr] = divide(get(queriesName(s)), s.numHeads, s.nopeDim, queryWidth(s));
  const [wDkv, wKr] = divide(get("kv_a_proj_with_mqa"), 1, s.kvRank, s.embedDim);
  const [wUk, wUv] = divide(get("kv_b_proj"), s.numHeads, s.nopeDim, s.kvRank);
  const data: Record<string, Float32Array> = { wUq, wQr, wDkv, wKr, wUk, wUv };
  data.wDq = get("q_a_proj");
  data.wO = get("o_proj");
  data.normQWeight = get("q_a_layernorm");
  data.normKvWeight = get("kv_a_layernorm");
  return [...weightShapes(s)].map(([name, shape]) => [name, data[name] as Float32Array, shape]);
}

class MultiHeadLatentAttentionLayer
  extends Layer<Sizes>
  implements MultiHeadLatentAttentionMembers
{
  constructor(heap: Heap<KernelGlue>, registry: Registry, options: unknown) {
    super(heap, registry, MECHANISM, readSizes, options);
  }

  loadStateDict(state: unknown, options?: unknown): void {
    this.checkUsable();
    const read = readState(state, options, deepseekShapes(this.options));
    this.replace(fromDeepseek(this.options, read));
  }

  loadWeights(weights: unknown, options?: unknown): void {
    this.checkUsable();
    this.replace(readWeights(weights, options, weightShapes(this.options)));
  }

  forward(x: unknown, options?: unknown): never {
    this.checkLoaded();
    const { embedDim, form, rope, ropeBase, ropeScaling, epsilon } = this.options;
    checkLastExtent("x", x, "embedDim", embedDim);
    const settled: Record<string, unknown> = { form, rope, ropeBase, epsilon };
    addScaling("ropeScaling", ropeScaling, settled);
    return this.run({ x }, settled, options) as never;
  }
}

/** The class that an instance shows as `heed.MultiHeadLatentAttention`. */
export const multiHeadLatentAttentionOf = (
  heap: Heap<KernelGlue>,
  registry: Registry,
): MultiHeadLatentAttentionConstructor =>
  layerOf("MultiHeadLatentAttention", heap, registry, MultiHeadLatentAttentionLayer);
