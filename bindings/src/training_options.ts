import type { Dropout, Window } from "./attention.js";
import { fail } from "./errors.js";
import type { ParamValue } from "./glue.js";
import { asRecord, checkNames } from "./option_names.js";
import { checkSeed, expandDropout, expandWindow, publicName } from "./params.js";
import { snakeCase } from "./registry.js";
import type { ConfigRow } from "./training_glue.js";

const POSITIONS = ["none", "learned", "rope", "alibi"] as const;
const NORMS = ["layer", "rms"] as const;
const ACTIVATIONS = ["gelu", "gelu_tanh", "silu", "relu"] as const;

/** Sizes and parts of a transformer over tokens. */
export interface TransformerOptions {
  /** Token ids lie in [0, vocabulary). */
  readonly vocabulary: number;
  /** A multiple of numHeads. Default 64. */
  readonly embedDim?: number | undefined;
  /** Default 2. */
  readonly numLayers?: number | undefined;
  /** Default 4. */
  readonly numHeads?: number | undefined;
  /** A divisor of numHeads. Default numHeads. */
  readonly numKvHeads?: number | undefined;
  /** Default 4 embedDim. */
  readonly ffDim?: number | undefined;
  /** The longest sequence; only with position "learned". Default 256. */
  readonly maxLen?: number | undefined;
  /** Of self-attention: one of `training.mechanisms`. Default "scaled_dot_product". */
  readonly mechanism?: string | undefined;
  /**
   * Parameters of the mechanism as `heed.run` takes them, such as { window: { left: 4 } }. `dropout`
   * holds for trainStep(), which drops other weights in each step and layer.
   */
  readonly params?:
    | Readonly<Record<string, ParamValue | bigint | Window | Dropout | undefined>>
    | undefined;
  /** Default true. */
  readonly causal?: boolean | undefined;
  /** How the model learns where tokens stand. Default "rope", which mechanisms without keys (hgrn2) refuse. */
  readonly position?: (typeof POSITIONS)[number] | undefined;
  /** Default 10000. */
  readonly ropeBase?: number | undefined;
  /** Default "rms". */
  readonly norm?: (typeof NORMS)[number] | undefined;
  /** Default "silu". */
  readonly activation?: (typeof ACTIVATIONS)[number] | undefined;
  /** A gate in the feed-forward network. Default true. */
  readonly gated?: boolean | undefined;
  /** Biases of the linear maps. Default false. */
  readonly bias?: boolean | undefined;
  /** The output matrix is the embedding's. Default false. */
  readonly tied?: boolean | undefined;
  /** Layers of an encoder of source tokens, to which the blocks attend. Default 0. */
  readonly encoderLayers?: number | undefined;
  /** Of that attention: only with encoderLayers. Default "scaled_dot_product". */
  readonly crossMechanism?: string | undefined;
  /** Of the first weights: a whole number from 0 to 2^53 - 1. Default 0. */
  readonly seed?: number | undefined;
}

/** The options of a model with their defaults, but for `params`, and how many weights it has. */
export type TransformerSizes = {
  readonly [K in Exclude<keyof TransformerOptions, "params">]-?: NonNullable<TransformerOptions[K]>;
} & { readonly numParameters: number };

/** AdamW, its schedule and clipping. */
export interface OptimizerOptions {
  /** The highest rate. Default 1e-3. */
  readonly learningRate?: number | undefined;
  /** The rate after totalSteps. Default 0. */
  readonly minLearningRate?: number | undefined;
  /** Steps over which the rate grows from 0. Default 0. */
  readonly warmupSteps?: number | undefined;
  /** Steps until the rate has fallen, along a cosine. Default 0: it does not fall. */
  readonly totalSteps?: number | undefined;
  /** Default 0.9. */
  readonly beta1?: number | undefined;
  /** Default 0.999. */
  readonly beta2?: number | undefined;
  /** Default 1e-8. */
  readonly epsilon?: number | undefined;
  /** Of matrices. Default 0.01. */
  readonly weightDecay?: number | undefined;
  /** Gradients whose norm is larger are scaled to it; Infinity = off. Default 1. */
  readonly maxGradientNorm?: number | undefined;
}

/** What a step did. */
export interface StepResult {
  /** Its number, from 1; that of the last step that updated something, where this one did not. */
  readonly step: number;
  /** Mean cross-entropy in nats, before the update. */
  readonly loss: number;
  /** Targets that were not ignored; 0: nothing was updated. */
  readonly counted: number;
  /** Of all weights together, before clipping. */
  readonly gradientNorm: number;
  readonly learningRate: number;
  /** The loss or the norm was not finite: nothing was updated, and training has ended. */
  readonly diverged: boolean;
}

/** Reads fields of an options object, whose names are known. */
class Fields {
  readonly #given: Record<string, unknown>;

  constructor(what: string, given: unknown, names: readonly string[]) {
    this.#given = asRecord(what, given);
    checkNames(what, this.#given, new Set(names));
  }

  get(name: string, otherwise?: unknown): unknown {
    const value = this.#given[name];
    return value === undefined ? otherwise : value;
  }

  /** A number for which `holds`; `range` says which those are. */
  number(
    name: string,
    otherwise: number,
    holds: (value: number) => boolean,
    range: string,
  ): number {
    const value = this.get(name, otherwise);
    if (typeof value !== "number") fail("option", name, value, "a number");
    if (!holds(value)) fail("range", name, value, range);
    return value;
  }

  whole(name: string, otherwise: number | undefined, least: number, most = 2 ** 28): number {
    const value = this.get(name, otherwise);
    if (typeof value !== "number") fail("option", name, value, "a whole number");
    if (!Number.isSafeInteger(value) || value < least || value > most) {
      fail("range", name, value, `a whole number from ${least} to ${most}`);
    }
    return value;
  }

  flag(name: string, otherwise: boolean): boolean {
    const value = this.get(name, otherwise);
    if (typeof value !== "boolean") fail("option", name, value, "true or false");
    return value;
  }

  text(name: string, otherwise: string): string {
    const value = this.get(name, otherwise);
    // Longer than any id: nothing that a message should repeat.
    if (typeof value !== "string" || value.length > 64) {
      fail("option", name, value, "the id of a mechanism");
    }
    return value;
  }

  /** The place of a word in its list. */
  word(name: string, words: readonly string[], otherwise: string): number {
    const place = words.indexOf(this.get(name, otherwise) as string);
    if (place < 0) {
      const known = words.map((word) => JSON.stringify(word)).join(", ");
      fail("option", name, this.#given[name], `one of ${known}`);
    }
    return place;
  }
}

/** More are refused by C++ as well. */
const MOST_LAYERS = 1000;

const MODEL_NAMES = [
  "vocabulary",
  "embedDim",
  "numLayers",
  "numHeads",
  "numKvHeads",
  "ffDim",
  "maxLen",
  "mechanism",
  "params",
  "causal",
  "position",
  "ropeBase",
  "norm",
  "activation",
  "gated",
  "bias",
  "tied",
  "encoderLayers",
  "crossMechanism",
  "seed",
];

/** Checks the options of a model; C++ fills in what follows from others (0). */
export function readModelOptions(given: unknown): ConfigRow {
  const fields = new Fields("options", given, MODEL_NAMES);
  return {
    vocabulary: fields.whole("vocabulary", undefined, 1),
    embedDim: fields.whole("embedDim", 64, 1),
    numLayers: fields.whole("numLayers", 2, 1, MOST_LAYERS),
    numHeads: fields.whole("numHeads", 4, 1),
    numKvHeads: fields.get("numKvHeads") === undefined ? 0 : fields.whole("numKvHeads", 0, 1),
    ffDim: fields.get("ffDim") === undefined ? 0 : fields.whole("ffDim", 0, 1),
    maxLen: fields.whole("maxLen", 256, 1),
    mechanism: fields.text("mechanism", "scaled_dot_product"),
    causal: fields.flag("causal", true),
    position: fields.word("position", POSITIONS, "rope"),
    ropeBase: fields.number("ropeBase", 10000, (x) => x > 1 && x < Infinity, "in (1, inf)"),
    norm: fields.word("norm", NORMS, "rms"),
    activation: fields.word("activation", ACTIVATIONS, "silu"),
    gated: fields.flag("gated", true),
    bias: fields.flag("bias", false),
    tied: fields.flag("tied", false),
    encoderLayers: fields.whole("encoderLayers", 0, 0, MOST_LAYERS),
    crossMechanism: fields.text("crossMechanism", "scaled_dot_product"),
    seed: fields.whole("seed", 0, 0, Number.MAX_SAFE_INTEGER),
  };
}

function readParam(name: string, value: unknown): ParamValue {
  if (typeof value === "bigint") return checkSeed(`params.${name}`, value);
  if (Array.isArray(value)) {
    const list = Array.from(value as unknown[]);
    if (list.every((x) => typeof x === "number")) return list;
  } else if (typeof value === "boolean" || typeof value === "number" || typeof value === "string") {
    return value;
  }
  return fail("option", `params.${name}`, value, "a flag, a number, a word or numbers");
}

/** Parameters of the mechanism as C++ takes them, and how the caller spells them. */
export interface MechanismParams {
  /** In C++'s spelling. */
  readonly names: readonly string[];
  readonly values: ParamValue[];
  readonly nameOf: (name: string) => string;
}

/** Reads `params`. C++ knows which there are, and of which types. */
export function readParams(given: unknown): MechanismParams {
  const written = asRecord("params", asRecord("options", given).params);
  const params = expandDropout(expandWindow(written));
  const names: string[] = [];
  const values: ParamValue[] = [];
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined) continue;
    if (!/^[a-zA-Z0-9_]+$/.test(name)) fail("option", "params", name, "names of parameters");
    values.push(readParam(written[name] === undefined ? publicName(name) : name, value));
    names.push(snakeCase(name));
  }
  const nameOf = (name: string) => (written[name] === undefined ? publicName(name) : name);
  return { names, values, nameOf };
}

const OPTIMIZER_NAMES = [
  "learningRate",
  "minLearningRate",
  "warmupSteps",
  "totalSteps",
  "beta1",
  "beta2",
  "epsilon",
  "weightDecay",
  "maxGradientNorm",
];

export function readOptimizerOptions(given: unknown): Record<string, number> {
  const fields = new Fields("optimizer", given, OPTIMIZER_NAMES);
  const finite = (x: number): boolean => x > 0 && x < Infinity;
  const share = (x: number): boolean => x >= 0 && x < 1;
  const rate = fields.number("learningRate", 1e-3, finite, "in (0, inf)");
  const warmupSteps = fields.whole("warmupSteps", 0, 0, Number.MAX_SAFE_INTEGER);
  const totalSteps = fields.whole("totalSteps", 0, 0, Number.MAX_SAFE_INTEGER);
  if (totalSteps !== 0 && totalSteps <= warmupSteps) {
    fail("range", "totalSteps", totalSteps, `0, or more than warmupSteps = ${warmupSteps}`);
  }
  return {
    learningRate: rate,
    minLearningRate: fields.number(
      "minLearningRate",
      0,
      (x) => x >= 0 && x <= rate,
      `in [0, learningRate = ${rate}]`,
    ),
    warmupSteps,
    totalSteps,
    beta1: fields.number("beta1", 0.9, share, "in [0, 1)"),
    beta2: fields.number("beta2", 0.999, share, "in [0, 1)"),
    epsilon: fields.number("epsilon", 1e-8, finite, "in (0, inf)"),
    weightDecay: fields.number("weightDecay", 0.01, (x) => x >= 0 && x < Infinity, "in [0, inf)"),
    maxGradientNorm: fields.number("maxGradientNorm", 1, (x) => x > 0, "in (0, inf]"),
  };
}

/** The configuration of a model, its words back from their places. */
export function toSizes(row: ConfigRow): TransformerSizes {
  return Object.freeze({
    ...row,
    position: POSITIONS[row.position as number],
    norm: NORMS[row.norm as number],
    activation: ACTIVATIONS[row.activation as number],
  }) as unknown as TransformerSizes;
}
