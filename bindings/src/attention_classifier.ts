import type { OnlyKnownOf, ResultTensor } from "./attention.js";
import type { KernelGlue } from "./glue.js";
import type { Heap } from "./heap.js";
import {
  Layer,
  type LayerMechanism,
  LayerOptions,
  layerOf,
  readHeadSizes,
  readWeights,
  type WeightShapes,
} from "./layer.js";
import { SELF_WEIGHTS, selfShapes } from "./projections.js";
import type { Registry } from "./registry.js";
import type { TensorArgument } from "./source.js";
import type { LoadStateOptions, StateDict } from "./state_dict.js";
import type { WithDispose } from "./tensor.js";
import type { SelfAttentionOptions } from "./transformer_block.js";

/** Sizes and parts of a classifier of token sequences. */
export interface AttentionClassifierOptions {
  /** Rows of the embedding: tokens are 0 to vocabulary - 1. */
  readonly vocabulary: number;
  readonly embedDim: number;
  readonly numHeads: number;
  readonly numClasses: number;
  /** Rows of the position table, the longest sequence. Absent: no positions are added. */
  readonly maxLen?: number | undefined;
  /** Default numHeads; a divisor of it. */
  readonly numKvHeads?: number | undefined;
  /** Default embedDim / numHeads, which must be whole. */
  readonly headDim?: number | undefined;
  /** Of the values; default headDim. */
  readonly headDimV?: number | undefined;
  /** How the rows of a sequence become one. Default "mean". */
  readonly pooling?: "mean" | "first" | "max" | "attention" | undefined;
  /** Biases of all matrices. Default true. */
  readonly bias?: boolean | undefined;
  /** One more key and value of zeros. Default false. */
  readonly addZeroAttn?: boolean | undefined;
}

/** The options of a classifier with their defaults; without positions there is no maxLen. */
export type AttentionClassifierSizes = {
  readonly [K in Exclude<keyof AttentionClassifierOptions, "maxLen">]-?: NonNullable<
    AttentionClassifierOptions[K]
  >;
} & { readonly maxLen?: number };

/** A classifier with its weights in the memory of the instance. */
export interface AttentionClassifierMembers {
  readonly options: AttentionClassifierSizes;
  readonly disposed: boolean;
  /**
   * Loads weights by the names of the mechanism `attention_classifier`: embedding [vocabulary,
   * embed_dim], positionTable [max_len, embed_dim], wQ [num_heads, head_dim, embed_dim], wK, wV,
   * wO [embed_dim, num_heads, head_dim_v], bQ, bK, bV, bO, poolQuery [embed_dim], wClass
   * [num_classes, embed_dim], bClass: those that the options ask for, and no other.
   */
  loadWeights(weights: StateDict, options?: LoadStateOptions): void;
  /**
   * tokens [batch, len], whole numbers -> output [batch, numClasses]: logits. Tokens at or beyond
   * keyLengths are never read; a sequence of length 0 gives bClass. Results are plain unless an argument
   * is a Tensor. Throws HeedError.
   */
  forward<
    const T extends TensorArgument,
    const O extends SelfAttentionOptions = Record<never, never>,
  >(
    tokens: T,
    options?: O & OnlyKnownOf<O, SelfAttentionOptions>,
  ): { readonly output: ResultTensor<T, T, T, O> };
  /** Frees the weights. May be called again. */
  dispose(): void;
}

export type AttentionClassifier = AttentionClassifierMembers & WithDispose;

/** `heed.AttentionClassifier`: makes classifiers in that instance. */
export interface AttentionClassifierConstructor {
  new (options: AttentionClassifierOptions): AttentionClassifier;
}

const OPTION_NAMES = [
  ..."vocabulary embedDim numHeads numClasses maxLen numKvHeads headDim headDimV".split(" "),
  ..."pooling bias addZeroAttn".split(" "),
];

const MECHANISM: LayerMechanism = {
  id: "attention_classifier",
  streams: ["tokens"],
  weights: [...SELF_WEIGHTS, "embedding", "positionTable", "poolQuery", "wClass", "bClass"],
  settled: ["pooling", "addZeroAttn"],
  loaders: "loadWeights()",
};

function readSizes(given: unknown): AttentionClassifierSizes {
  const options = new LayerOptions(given, OPTION_NAMES);
  return {
    vocabulary: options.count("vocabulary"),
    ...readHeadSizes(options),
    numClasses: options.count("numClasses"),
    ...(options.has("maxLen") ? { maxLen: options.count("maxLen") } : {}),
    pooling: options.word("pooling", ["mean", "first", "max", "attention"], "mean"),
    bias: options.flag("bias", true),
    addZeroAttn: options.flag("addZeroAttn", false),
  };
}

function weightShapes(s: AttentionClassifierSizes): WeightShapes {
  const shapes = new Map(selfShapes(s));
  shapes.set("embedding", [s.vocabulary, s.embedDim]);
  if (s.maxLen !== undefined) shapes.set("positionTable", [s.maxLen, s.embedDim]);
  if (s.pooling === "attention") shapes.set("poolQuery", [s.embedDim]);
  shapes.set("wClass", [s.numClasses, s.embedDim]);
  if (s.bias) shapes.set("bClass", [s.numClasses]);
  return shapes;
}

class AttentionClassifierLayer
  extends Layer<AttentionClassifierSizes>
  implements AttentionClassifierMembers
{
  constructor(heap: Heap<KernelGlue>, registry: Registry, options: unknown) {
    super(heap, registry, MECHANISM, readSizes, options);
  }

  loadWeights(weights: unknown, options?: unknown): void {
    this.checkUsable();
    this.replace(readWeights(weights, options, weightShapes(this.options)));
  }

  forward(tokens: unknown, options?: unknown): never {
    this.checkLoaded();
    const { pooling, addZeroAttn } = this.options;
    return this.run({ tokens }, { pooling, addZeroAttn }, options) as never;
  }
}

/** The class that an instance shows as `heed.AttentionClassifier`. */
export const attentionClassifierOf = (
  heap: Heap<KernelGlue>,
  registry: Registry,
): AttentionClassifierConstructor =>
  layerOf("AttentionClassifier", heap, registry, AttentionClassifierLayer);
