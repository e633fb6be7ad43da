// One training: a model, its batches, and looks at what it has learned. Knows no page and no worker.
import type { StepResult, Training, TransformerModel } from "heed/training";
import { uniformSource } from "../lib/random.js";
import { choiceOf, type Settings } from "./settings.js";
import { accuracyOf, drawSequences, favourites, LEN, LETTERS, type Sequences } from "./task.js";

export const LAYERS = 2;
export const HEADS = 4;
/** Steps until the rate has fallen. */
export const STEPS = 400;
const BATCH = 32;
const TEST_BATCH = 64;
/** Batches, test sequences and the shown sequence have generators of their own. */
const SEEDS = { test: 7_000_001, shown: 7_000_003 };

/** A look at the model between two steps. */
export interface Look {
  step: number;
  /** Share of the letters of unseen sequences that can be known and are right. */
  accuracy: number;
  /** Of the sequence that is shown. */
  tokens: number[];
  targets: number[];
  guesses: number[];
  /** [LAYERS][HEADS, LEN, LEN]. */
  heads: Float32Array[];
}

export class Session {
  readonly #model: TransformerModel;
  readonly #next: () => number;
  readonly #test: Sequences = drawSequences(TEST_BATCH, uniformSource(SEEDS.test));
  readonly #shown: Sequences = drawSequences(1, uniformSource(SEEDS.shown));
  #step = 0;

  constructor(training: Training, settings: Settings) {
    const { mechanism, params = {} } = choiceOf(settings.mechanism);
    this.#model = training.transformer({
      vocabulary: LETTERS.length,
      embedDim: 64,
      numLayers: LAYERS,
      numHeads: HEADS,
      mechanism,
      params,
      seed: settings.seed,
    });
    this.#model.setOptimizer({
      learningRate: 3e-3,
      minLearningRate: 3e-4,
      warmupSteps: 50,
      totalSteps: STEPS,
    });
    this.#next = uniformSource(settings.seed);
  }

  get parameters(): number {
    return this.#model.sizes.numParameters;
  }

  step(): StepResult {
    const result = this.#model.trainStep(drawSequences(BATCH, this.#next));
    this.#step = result.step;
    return result;
  }

  look(): Look {
    const { tokens, targets, batch } = this.#test;
    const accuracy = accuracyOf(this.#model.predict({ tokens, batch }).data, targets);
    const shown = this.#model.predict({ tokens: this.#shown.tokens });
    const heads = Array.from({ length: LAYERS }, (_, layer) => this.#model.heads({ layer }).data);
    return {
      step: this.#step,
      accuracy,
      tokens: [...this.#shown.tokens],
      targets: [...this.#shown.targets],
      guesses: favourites(shown.data).slice(0, LEN),
      heads,
    };
  }

  dispose(): void {
    this.#model.dispose();
  }
}
