// How the samples near a place may be weighted.
import type { Kernel } from "heed";
import { t } from "../../lib/messages.js";
import { type Variant, Variants } from "../variants.js";

export interface KernelVariant extends Variant {
  /** Of x_i - x_j; or "dot": softmax of x_i x_j / width^2; or "average": no weights at all. */
  readonly weights: Kernel | "dot" | "average";
  /** A width is learned from its gradient, or from a difference of two losses. */
  readonly slope: "gradient" | "difference" | "none";
  /** The width at the beginning. */
  readonly start: number;
  /** A sample counts towards its own prediction. */
  readonly seesItself?: true;
}

export const variants = new Variants<KernelVariant>(200, [
  {
    id: "gaussian",
    words: t`gaussian`,
    remark: t`Each sample is predicted from the others, and the width follows the gradient of that error.`,
    weights: "gaussian",
    slope: "gradient",
    start: 1,
  },
  {
    id: "narrow",
    words: t`gaussian, from a narrow start`,
    remark: t`The same from the other side: a width of a fiftieth grows.`,
    weights: "gaussian",
    slope: "gradient",
    start: 0.02,
  },
  {
    id: "itself",
    words: t`gaussian, sees itself`,
    remark: t`A sample predicts itself best: the width falls towards 0, the loss too, and new samples are predicted worse.`,
    weights: "gaussian",
    slope: "gradient",
    start: 1,
    seesItself: true,
  },
  {
    id: "epanechnikov",
    words: "epanechnikov",
    remark: t`A parabola that ends at one width. The module of this page has no gradient for it: the slope is measured, by two more predictions a step.`,
    weights: "epanechnikov",
    slope: "difference",
    start: 1,
  },
  {
    id: "boxcar",
    words: "boxcar",
    remark: t`All samples within one width count alike: the loss is a staircase, its slope is noise, and the fit jumps.`,
    weights: "boxcar",
    slope: "difference",
    start: 1,
  },
  {
    id: "dot",
    words: t`dot product`,
    remark: t`Softmax of products knows size, not nearness: places look at the ends, or everywhere alike.`,
    weights: "dot",
    slope: "gradient",
    start: 1,
  },
  {
    id: "average",
    words: t`average`,
    remark: t`All samples count alike everywhere: there is no width, and nothing to learn.`,
    weights: "average",
    slope: "none",
    start: 1,
  },
]);
