// What copying may be learned with.
import { t } from "../../lib/messages.js";
import { type MechanismVariant, Variants } from "../variants.js";

export const LAYERS = 2;
export const HEADS = 4;

export const variants = new Variants<MechanismVariant>(400, [
  {
    id: "softmax",
    words: t`softmax`,
    remark: t`Every token may look at any earlier one: copying is learned within a few hundred steps.`,
    mechanism: "scaled_dot_product",
  },
  {
    id: "window",
    words: t`window of 4`,
    remark: t`A token sees itself and three before it: two layers reach six back, and most rounds are longer.`,
    mechanism: "scaled_dot_product",
    params: { windowLeft: 3 },
  },
  {
    id: "sigmoid",
    words: t`sigmoid`,
    remark: t`Keys do not compete, so a head may also find nothing; it takes a little longer.`,
    mechanism: "sigmoid",
  },
  {
    id: "forgetting",
    words: t`forgetting`,
    remark: t`Softmax with a forget gate that each token sets.`,
    mechanism: "forgetting",
  },
  {
    id: "linear",
    words: t`linear`,
    remark: t`All keys share one matrix: letters that are alike are mixed up.`,
    mechanism: "linear",
  },
  {
    id: "retention",
    words: t`retention`,
    remark: t`A state that fades at a fixed rate for each head; weights have both signs.`,
    mechanism: "retention",
  },
  {
    id: "delta_rule",
    words: t`delta rule`,
    remark: t`Each key’s old value is erased before the new one is written.`,
    mechanism: "delta_rule",
  },
  {
    id: "average",
    words: t`average`,
    remark: t`Scores do not matter: every earlier token counts alike, whatever it holds.`,
    mechanism: "average",
  },
]);
