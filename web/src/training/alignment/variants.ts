// What the decoder may look at the word with. Recurrent mechanisms are causal by nature and cannot.
import { t } from "../../lib/messages.js";
import { type MechanismVariant, Variants } from "../variants.js";

export const variants = new Variants<MechanismVariant>(300, [
  {
    id: "softmax",
    words: t`softmax`,
    remark: t`Each letter that is written finds the one that it is copied from.`,
    mechanism: "scaled_dot_product",
  },
  {
    id: "sigmoid",
    words: t`sigmoid`,
    remark: t`Keys do not compete: a row need not sum to 1, and several letters may count fully.`,
    mechanism: "sigmoid",
  },
  {
    id: "cosine",
    words: t`cosine`,
    remark: t`Scores lie between −1 and 1, so no letter stands out: a little more than its share is enough.`,
    mechanism: "cosine",
  },
  {
    id: "linear",
    words: t`linear`,
    remark: t`No exponential makes one letter win: the weights stay spread out.`,
    mechanism: "linear",
  },
  {
    id: "neighborhood",
    words: t`neighbours only`,
    remark: t`A place sees only places near its own, so the encoder’s own attention must first carry each letter to where it can be seen.`,
    mechanism: "neighborhood",
  },
  {
    id: "average",
    words: t`average`,
    remark: t`Only which letters there are gets through, not where they stand: enough to sort most words, useless for reversing.`,
    mechanism: "average",
  },
]);
