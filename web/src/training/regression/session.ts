// A width is learned: AdamW's step without decay, on its logarithm.
import type { Heed } from "heed";
import { normalSource, uniformSource } from "../../lib/random.js";
import { type Look, SEEDS, type Session, type Step } from "../session.js";
import { KernelRegression } from "./kernel.js";
import {
  COUNT,
  curveAt,
  drawSamples,
  explained,
  GRID,
  meanSquare,
  type Samples,
} from "./samples.js";
import { type KernelVariant, variants } from "./variants.js";

const RATE = 0.05;
const BETA1 = 0.9;
const BETA2 = 0.99;
const EPSILON = 1e-8;
const HELD_OUT = 200;

const draw = (count: number, seed: number): Samples =>
  drawSamples(count, uniformSource(seed), normalSource(seed + 1));

export class RegressionSession implements Session {
  readonly parameters: number;
  readonly steps = variants.steps;
  readonly lookEvery = 50;
  readonly #variant: KernelVariant;
  readonly #samples: Samples;
  readonly #heldOut: Samples = draw(HELD_OUT, SEEDS.test);
  readonly #model: KernelRegression;
  #logWidth: number;
  #moments = { first: 0, second: 0 };
  #step = 0;

  constructor(heed: Heed, variant: string, seed: number) {
    this.#variant = variants.of(variant);
    this.#samples = draw(COUNT, seed);
    this.#model = new KernelRegression(heed, this.#variant, this.#samples);
    this.#logWidth = Math.log(this.#variant.start);
    this.parameters = this.#variant.slope === "none" ? 0 : 1;
  }

  get #width(): number {
    return Math.exp(this.#logWidth);
  }

  step(): Step {
    const { loss, slope } = this.#model.slope(this.#width);
    const diverged = !Number.isFinite(loss) || !Number.isFinite(slope);
    if (!diverged) this.#update(slope);
    const result = {
      step: this.#step,
      loss,
      counted: COUNT,
      gradientNorm: Math.abs(slope),
      learningRate: RATE,
      diverged,
    };
    return this.parameters === 0 ? result : { ...result, width: this.#width };
  }

  #update(slope: number): void {
    const moments = this.#moments;
    this.#step++;
    moments.first = BETA1 * moments.first + (1 - BETA1) * slope;
    moments.second = BETA2 * moments.second + (1 - BETA2) * slope ** 2;
    const mean = moments.first / (1 - BETA1 ** this.#step);
    const size = Math.sqrt(moments.second / (1 - BETA2 ** this.#step));
    this.#logWidth -= (RATE * mean) / (size + EPSILON);
  }

  look(): Look {
    const fitted = this.#model.predict(GRID, this.#width);
    const { x, y } = this.#samples;
    return {
      step: this.#step,
      accuracy: explained(fitted),
      heldOut: meanSquare(this.#model.predict(this.#heldOut.x, this.#width), this.#heldOut.y),
      tokens: [],
      targets: [],
      guesses: [],
      heads: [this.#model.weights(this.#width)],
      fit: {
        x: [...x],
        y: [...y],
        grid: [...GRID],
        truth: [...GRID].map(curveAt),
        fitted: [...fitted],
        width: this.parameters === 0 ? null : this.#width,
        seesItself: this.#variant.seesItself === true,
      },
    };
  }

  /** The instance of heed serves all sessions, and nothing of it is held. */
  dispose(): void {}
}
