// Runs of a model whose weights are read: losses, likely tokens, weights of heads, generation.
import type { Heed } from "heed";
import { uniformSource } from "../lib/random.js";
import { Forward, type ForwardRequest } from "./forward.js";
import { KeyCache } from "./key_cache.js";
import { drawToken, lossOf, probabilityOf, readLogits, topIds } from "./likeliest.js";
import type { GeneratedToken, Head, LayerHeads, RunResult } from "./model_types.js";
import type { Sizes, Style } from "./style.js";

/** Elements of the logits that are in memory at one time: 64 MB. */
const LOGITS = 2 ** 24;

export interface EngineRun {
  readonly ids: readonly number[];
  readonly pruned: readonly Head[];
  readonly layers: ReadonlySet<number>;
  readonly topK: number;
}

export interface EngineGeneration {
  readonly ids: readonly number[];
  readonly maxTokens: number;
  readonly temperature: number;
  readonly topK: number | null;
  readonly seed: number;
  readonly pruned: readonly Head[];
}

/** A token without its text. */
export type NewToken = Omit<GeneratedToken, "text">;

type Pause = ForwardRequest["pause"];

export class Engine {
  private readonly forward: Forward;

  /** Arguments of its calls are checked before: requests.ts. */
  constructor(
    private readonly heed: Heed,
    private readonly style: Style,
    private readonly sizes: Sizes,
    private readonly endTokens: readonly number[],
  ) {
    this.forward = new Forward(heed, style, sizes);
  }

  async run({ ids, pruned, layers, topK }: EngineRun, pause: Pause): Promise<RunResult> {
    const begin = performance.now();
    const heads = { rows: "all", layers } as const;
    const request = { ids, start: 0, cache: null, pruned, heads, pause };
    const { x, weights } = await this.forward.run(request);
    const tokens = await this.readTokens(ids, x, topK, pause);
    const byLayer: LayerHeads[] = [];
    for (const [layer, all] of weights) {
      await pause();
      byLayer.push({ layer, weights: all, mean: meanOfHeads(all, this.sizes.numHeads) });
    }
    const milliseconds = performance.now() - begin;
    return { len: ids.length, topK, ...tokens, heads: byLayer, milliseconds };
  }

  private async readTokens(ids: readonly number[], x: Float32Array, topK: number, pause: Pause) {
    const { embedDim, vocabSize } = this.sizes;
    const len = ids.length;
    const losses = new Float32Array(len - 1);
    const likely = new Int32Array(len * topK);
    const topProbabilities = new Float32Array(len * topK);
    const step = Math.max(1, Math.floor(LOGITS / vocabSize));
    for (let first = 0; first < len; first += step) {
      await pause();
      const last = Math.min(first + step, len);
      const logits = this.style.logits(x.subarray(first * embedDim, last * embedDim));
      for (let at = first; at < last; at++) {
        const begin = (at - first) * vocabSize;
        const row = readLogits(logits.subarray(begin, begin + vocabSize), at);
        if (at + 1 < len) losses[at] = lossOf(row, ids[at + 1] as number);
        topIds(row, topK).forEach((id, rank) => {
          likely[at * topK + rank] = id;
          topProbabilities[at * topK + rank] = probabilityOf(row, id);
        });
      }
    }
    return { losses, topIds: likely, topProbabilities };
  }

  /** Each token is computed when it is asked for. */
  async *generate(
    generation: EngineGeneration,
    pause: Pause,
  ): AsyncGenerator<NewToken, void, void> {
    const { ids, maxTokens, pruned, seed } = generation;
    const uniform = uniformSource(seed);
    // The last token that is drawn looks at nothing.
    const cache = new KeyCache(this.heed, this.sizes, ids.length + maxTokens - 1);
    const layers = new Set(Array.from({ length: this.sizes.numLayers }, (_, layer) => layer));
    const heads = { rows: "last", layers } as const;
    try {
      let [start, news] = [0, ids];
      for (let count = 0; count < maxTokens; count++) {
        const begin = performance.now();
        const request = { ids: news, start, cache, pruned, heads, pause };
        const { x, weights } = await this.forward.run(request);
        start += news.length;
        const row = readLogits(this.style.logits(x.slice(-this.sizes.embedDim)), start - 1);
        const id = drawToken(row, { ...generation, uniform });
        const attention = joined([...weights.values()]);
        const milliseconds = performance.now() - begin;
        yield { id, probability: probabilityOf(row, id), position: start, attention, milliseconds };
        if (this.endTokens.includes(id)) return;
        news = [id];
      }
    } finally {
      cache.dispose();
    }
  }
}

/** Of matrices that stand one after the other, `count` in all. */
function meanOfHeads(weights: Float32Array, count: number): Float32Array {
  const size = weights.length / count;
  const mean = new Float32Array(size);
  for (let head = 0; head < count; head++) {
    const own = weights.subarray(head * size, (head + 1) * size);
    for (let at = 0; at < size; at++) mean[at] = (mean[at] ?? 0) + (own[at] ?? 0) / count;
  }
  return mean;
}

function joined(parts: readonly Float32Array[]): Float32Array {
  const whole = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
