import { HeedError } from "./errors.js";
import type { Mechanism } from "./registry.js";

/** A checked call, as far as these rules look at it. */
interface Call {
  readonly mechanism: Mechanism;
  /** Parameters that are given. */
  readonly params: ReadonlyMap<string, unknown>;
  /** Names of the inputs that are given. */
  readonly inputs: ReadonlySet<string>;
  /** How the caller spells a parameter. */
  readonly nameOf: (name: string) => string;
}

/** Who reads a parameter or an input: these words of a parameter, or any of these. */
interface Readers {
  readonly by?: string;
  readonly words?: readonly string[];
  readonly names?: readonly string[];
}

const pattern = (...words: string[]): Readers => ({ by: "pattern", words });
const normalize = (...words: string[]): Readers => ({ by: "normalize", words });
const scaling = (...words: string[]): Readers => ({ by: "scaling", words });
const BLOCKS = ["blockKeep", "blockIndptr"];
const TABLES = ["relativeKeys", "relativeQueries", "relativeValues"];

const READERS: Readonly<Record<string, Readers>> = {
  reach: pattern("dilated", "longformer"),
  dilation: pattern("dilated", "longformer", "neighborhood"),
  globalTokens: pattern("longformer"),
  stride: pattern("strided", "fixed"),
  summary: pattern("fixed"),
  grid: pattern("axial", "swin_window", "neighborhood"),
  axis: pattern("axial"),
  windowSize: pattern("swin_window", "neighborhood"),
  shift: pattern("swin_window"),
  blockSize: { ...pattern("bigbird"), names: BLOCKS },
  windowBlocks: pattern("bigbird"),
  globalBlocks: pattern("bigbird"),
  randomBlocks: pattern("bigbird"),
  patternSeed: pattern("bigbird"),
  topK: normalize("top_k"),
  sigmoidBias: normalize("sigmoid"),
  lengthPower: normalize("relu", "relu_squared"),
  kernel: normalize("kernel_sum"),
  relativeRows: { names: TABLES },
  relativeMaxDistance: { by: "relativeRows", words: ["log_span"] },
  bucketDirection: { names: ["bucketBias"] },
  bucketMaxDistance: { names: ["bucketBias"] },
  captured: { names: ["scoreMod", "keepMod", "probMod", "featureMod"] },
  scalingFactor: scaling("linear", "ntk", "dynamic_ntk", "yarn", "llama3"),
  originalLen: scaling("dynamic_ntk", "yarn", "llama3"),
  seqLen: scaling("dynamic_ntk"),
  betaFast: scaling("yarn"),
  betaSlow: scaling("yarn"),
  attentionFactor: scaling("yarn"),
  lowFreqFactor: scaling("llama3"),
  highFreqFactor: scaling("llama3"),
};

const listed = (items: readonly string[]): string =>
  items.length < 2 ? items.join() : `${items.slice(0, -1).join(", ")} or ${items.at(-1)}`;

/** Whether a call reads what these describe. A mechanism that settles `by` itself reads all it takes. */
function isRead({ by, words = [], names = [] }: Readers, call: Call): boolean {
  const { mechanism, params, inputs } = call;
  if (by !== undefined && !mechanism.params.includes(by)) return true;
  if (by !== undefined && words.includes(params.get(by) as string)) return true;
  return names.some((name) => params.has(name) || inputs.has(name));
}

/** Refuses what the call would ignore: an option of another pattern, normaliser, scaling or table. */
export function checkRead(call: Call): void {
  for (const name of [...call.params.keys(), ...call.inputs]) {
    const readers = Object.hasOwn(READERS, name) ? READERS[name] : undefined;
    if (readers === undefined || isRead(readers, call)) continue;
    const { by, words = [], names = [] } = readers;
    const quoted = words.map((word) => JSON.stringify(word));
    const takes = (reader: string): boolean =>
      call.mechanism.params.includes(reader) ||
      call.mechanism.inputs.some((input) => input.name === reader);
    const options = [
      ...(by === undefined ? [] : [`${call.nameOf(by)} ${listed(quoted)}`]),
      ...names.filter(takes),
    ];
    throw new HeedError("option", `${call.nameOf(name)} is read only by ${listed(options)}`);
  }
}
