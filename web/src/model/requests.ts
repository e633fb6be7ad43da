// Arguments of the calls of a ModelClient, checked before anything is computed.
import type { EngineGeneration, EngineRun } from "./engine.js";
import { bytesText } from "./floats.js";
import { type Message, shown, t } from "./message.js";
import { refuse } from "./model_error.js";
import type { GenerateRequest, Head, RunRequest } from "./model_types.js";
import type { Sizes } from "./style.js";

/** Whatever the model has: logits of longer sequences take minutes in a tab. */
const MOST_TOKENS = 8192;
const MOST_TOP = 1000;
const MOST_HEAD_BYTES = 512e6;

function wrong(name: string, value: unknown, expected: Message): never {
  return refuse("bad-request", t`${name} is ${shown(String(value))}; expected ${expected}.`);
}

function checkWhole(name: string, value: unknown, least: number, most: number): number {
  const whole = typeof value === "number" && Number.isInteger(value);
  if (whole && value >= least && value <= most) return value;
  return wrong(name, value, t`a whole number from ${least} to ${most}`);
}

export function checkIds(ids: readonly number[], vocabSize: number): readonly number[] {
  if (!Array.isArray(ids)) wrong("ids", ids, t`a list of numbers`);
  ids.forEach((id, at) => {
    checkWhole(`ids[${at}]`, id, 0, vocabSize - 1);
  });
  return ids;
}

function checkPrompt(ids: readonly number[], more: number, sizes: Sizes): readonly number[] {
  checkIds(ids, sizes.vocabSize);
  if (ids.length === 0) refuse("bad-request", t`There are no tokens to begin with.`);
  const len = ids.length + more;
  if (sizes.contextLength !== null && len > sizes.contextLength)
    refuse(
      "too-long",
      t`${len} tokens are more than the model’s ${sizes.contextLength} positions.`,
    );
  if (len > MOST_TOKENS)
    refuse("too-long", t`${len} tokens are more than the ${MOST_TOKENS} that this page computes.`);
  return ids;
}

function checkPruned(pruned: readonly Head[] | undefined, sizes: Sizes): readonly Head[] {
  for (const { layer, head } of pruned ?? []) {
    checkWhole("pruned: layer", layer, 0, sizes.numLayers - 1);
    checkWhole("pruned: head", head, 0, sizes.numHeads - 1);
  }
  return pruned ?? [];
}

function checkLayers(heads: RunRequest["heads"], len: number, sizes: Sizes): ReadonlySet<number> {
  const { numHeads, numLayers } = sizes;
  const all = Array.from({ length: numLayers }, (_, layer) => layer);
  const wanted = heads === "all" ? all : heads === undefined || heads === "none" ? [] : heads;
  if (!Array.isArray(wanted)) wrong("heads", wanted, t`"all", "none" or a list of layers`);
  for (const layer of wanted) checkWhole("heads: layer", layer, 0, numLayers - 1);
  const layers = new Set(wanted);
  // The mean of a layer's heads is computed too.
  const bytes = 4 * layers.size * (numHeads + 1) * len * len;
  if (bytes > MOST_HEAD_BYTES)
    refuse(
      "too-long",
      t`The weights of ${layers.size} layers over ${len} tokens take ${bytesText(bytes)}; at most ${bytesText(MOST_HEAD_BYTES)} are computed. Ask for fewer layers.`,
    );
  return layers;
}

/** Throws ModelError ("bad-request", "too-long"), as below. */
export function readRun(request: RunRequest, sizes: Sizes): EngineRun {
  const ids = checkPrompt(request.ids, 0, sizes);
  const topK = checkWhole("topK", request.topK ?? 5, 0, MOST_TOP);
  return {
    ids,
    pruned: checkPruned(request.pruned, sizes),
    layers: checkLayers(request.heads, ids.length, sizes),
    topK: Math.min(topK, sizes.vocabSize),
  };
}

export function readGeneration(request: GenerateRequest, sizes: Sizes): EngineGeneration {
  const { temperature = 1, topK, seed = 0 } = request;
  const maxTokens = checkWhole("maxTokens", request.maxTokens, 1, MOST_TOKENS);
  if (!(typeof temperature === "number" && temperature >= 0 && temperature <= 100))
    wrong("temperature", temperature, t`a number from 0 to 100`);
  return {
    // The last token needs no position: nothing is computed from it.
    ids: checkPrompt(request.ids, maxTokens - 1, sizes),
    maxTokens,
    temperature,
    topK: topK === undefined ? null : checkWhole("topK", topK, 1, sizes.vocabSize),
    seed: checkWhole("seed", seed, 0, 2 ** 32 - 1),
    pruned: checkPruned(request.pruned, sizes),
  };
}
