// Nadaraya-Watson regression by heed's attention: queries and keys are places, values are what was seen
// there, and the width of the kernel is the only parameter.
import type { AttentionOptions, Heed } from "heed";
import { meanSquare, type Samples } from "./samples.js";
import type { KernelVariant } from "./variants.js";

/** Relative change of the width by which a slope is measured. */
const CHANGE = 0.02;

export interface Slope {
  /** Mean squared error of the samples. */
  loss: number;
  /** Its derivative by the logarithm of the width. */
  slope: number;
}

const column = (data: Float32Array) => ({ data, shape: [1, 1, data.length, 1] });

export class KernelRegression {
  readonly #heed: Heed;
  readonly #variant: KernelVariant;
  readonly #samples: Samples;
  /** Which sample may predict which. */
  readonly #keep: { data: Uint8Array; shape: number[] };

  constructor(heed: Heed, variant: KernelVariant, samples: Samples) {
    this.#heed = heed;
    this.#variant = variant;
    this.#samples = samples;
    const count = samples.x.length;
    const all = variant.seesItself === true;
    const data = Uint8Array.from({ length: count * count }, (_, cell) =>
      all || Math.floor(cell / count) !== cell % count ? 1 : 0,
    );
    this.#keep = { data, shape: [count, count] };
  }

  /** What is predicted at places, from all samples. */
  predict(places: Float32Array, width: number): Float32Array {
    const { x, y } = this.#samples;
    const query = column(this.#queries(places, width));
    return this.#heed.attention(query, column(x), column(y), this.#options(width)).output.data;
  }

  /** The weights of the samples for each other, [count, count]. */
  weights(width: number): Float32Array {
    const { x, y } = this.#samples;
    const options = { ...this.#options(width), keep: this.#keep, returnWeights: true as const };
    return this.#heed.attention(column(this.#queries(x, width)), column(x), column(y), options)
      .weights.data;
  }

  /** The loss at a width, and which way it falls. */
  slope(width: number): Slope {
    if (this.#variant.slope === "gradient") return this.#byGradient(width);
    const loss = this.#loss(width);
    if (this.#variant.slope === "none") return { loss, slope: 0 };
    const [more, less] = [width * (1 + CHANGE), width / (1 + CHANGE)];
    const slope = (this.#loss(more) - this.#loss(less)) / Math.log(more / less);
    return { loss, slope };
  }

  #options(width: number): AttentionOptions {
    const { weights } = this.#variant;
    if (weights === "dot") return { scale: 1 };
    if (weights === "average") return { normalize: "average" };
    return {
      score: "squared_distance",
      normalize: "kernel_sum",
      kernel: weights,
      width: { data: Float32Array.of(width), shape: [1] },
    };
  }

  /** A width is a factor on queries where scores are products. */
  #queries(places: Float32Array, width: number): Float32Array {
    return this.#variant.weights === "dot" ? places.map((place) => place / width ** 2) : places;
  }

  #loss(width: number): number {
    const { x, y } = this.#samples;
    const query = column(this.#queries(x, width));
    const options = { ...this.#options(width), keep: this.#keep };
    return meanSquare(this.#heed.attention(query, column(x), column(y), options).output.data, y);
  }

  #byGradient(width: number): Slope {
    const { x, y } = this.#samples;
    const queries = this.#queries(x, width);
    const options = { ...this.#options(width), keep: this.#keep };
    const vjp = this.#heed.attention.vjp(column(queries), column(x), column(y), options);
    try {
      const predicted = vjp.output.data;
      const arriving = predicted.map((value, i) => (2 * (value - (y[i] as number))) / y.length);
      const gradients = vjp.backward(column(arriving));
      const loss = meanSquare(predicted, y);
      if (this.#variant.weights !== "dot") {
        return { loss, slope: width * (gradients.width.data[0] as number) };
      }
      // d (x / width^2) / d log width = -2 x / width^2
      const slope = gradients.q.data.reduce((sum, d, i) => sum - 2 * d * (queries[i] as number), 0);
      return { loss, slope };
    } finally {
      vjp.dispose();
    }
  }
}
