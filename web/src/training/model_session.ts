// A transformer of heed/training that learns one of the tasks of tokens.
import type { TrainBatch, Training, TransformerModel, TransformerOptions } from "heed/training";
import { uniformSource } from "../lib/random.js";
import type { Look, Session, Step } from "./session.js";

/** What differs between the tasks. */
export interface ModelTask {
  model: TransformerOptions;
  learningRate: number;
  warmupSteps: number;
  steps: number;
  draw: (next: () => number) => TrainBatch;
  look: (model: TransformerModel) => Omit<Look, "step">;
}

export class ModelSession implements Session {
  readonly parameters: number;
  readonly steps: number;
  /** A look costs a few steps' time. */
  readonly lookEvery = 250;
  readonly #model: TransformerModel;
  readonly #task: ModelTask;
  readonly #next: () => number;
  #step = 0;

  constructor(training: Training, task: ModelTask, seed: number) {
    this.#task = task;
    this.#model = training.transformer({ ...task.model, seed });
    this.#model.setOptimizer({
      learningRate: task.learningRate,
      minLearningRate: task.learningRate / 10,
      warmupSteps: task.warmupSteps,
      totalSteps: task.steps,
    });
    this.parameters = this.#model.sizes.numParameters;
    this.steps = task.steps;
    this.#next = uniformSource(seed);
  }

  step(): Step {
    const result = this.#model.trainStep(this.#task.draw(this.#next));
    this.#step = result.step;
    return result;
  }

  look(): Look {
    return { step: this.#step, ...this.#task.look(this.#model) };
  }

  dispose(): void {
    this.#model.dispose();
  }
}
