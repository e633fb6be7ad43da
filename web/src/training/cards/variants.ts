// What the question may pool its hand with.
import { t } from "../../lib/messages.js";
import { type MechanismVariant, Variants } from "../variants.js";

export const HEADS = 2;

export const variants = new Variants<MechanismVariant>(300, [
  {
    id: "softmax",
    words: t`softmax`,
    remark: t`Attention pooling: the question finds its card, and hardly anything else is in the sum.`,
    mechanism: "scaled_dot_product",
  },
  {
    id: "average",
    words: t`mean`,
    remark: t`Mean pooling: all cards count alike. The sum of twelve cards is too little to tell which suit the one has.`,
    mechanism: "average",
  },
  {
    id: "window",
    words: t`window of 4`,
    remark: t`The question sees the last three cards: it must guess wherever its card came earlier.`,
    mechanism: "scaled_dot_product",
    params: { windowLeft: 3 },
  },
  {
    id: "sigmoid",
    words: t`sigmoid`,
    remark: t`Each card is kept or not by itself: that serves as well.`,
    mechanism: "sigmoid",
  },
  {
    id: "linear",
    words: t`linear`,
    remark: t`All cards share one matrix, and without an exponential the other cards are never quite silent.`,
    mechanism: "linear",
  },
  {
    id: "retention",
    words: t`retention`,
    remark: t`Earlier cards fade at a fixed rate for each head: slowly enough for a hand of twelve.`,
    mechanism: "retention",
  },
  {
    id: "delta_rule",
    words: t`delta rule`,
    remark: t`A state that is written card by card and read by the question: made for this.`,
    mechanism: "delta_rule",
  },
]);
