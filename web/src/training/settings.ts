// What may be chosen on the training page, and what an address says of it.
import { t } from "../lib/messages.js";

export interface MechanismChoice {
  /** In the address. */
  id: string;
  words: string;
  /** What becomes of copying with it. */
  remark: string;
  mechanism: string;
  params?: Readonly<Record<string, number>>;
}

export const MECHANISMS: readonly MechanismChoice[] = [
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
    remark: t`Each key's old value is erased before the new one is written.`,
    mechanism: "delta_rule",
  },
  {
    id: "average",
    words: t`average`,
    remark: t`Scores do not matter: every earlier token counts alike, whatever it holds.`,
    mechanism: "average",
  },
];

/** Milliseconds between two steps. */
export const PACES = [
  { value: 1000, words: t`one a second` },
  { value: 100, words: t`ten a second` },
  { value: 0, words: t`as fast as it goes` },
] as const;

export interface Settings {
  mechanism: string;
  seed: number;
}

export const DEFAULTS: Settings = { mechanism: "softmax", seed: 1 };
export const MOST_SEED = 999_999;

export const choiceOf = (id: string): MechanismChoice =>
  MECHANISMS.find((choice) => choice.id === id) ?? (MECHANISMS[0] as MechanismChoice);

/** An address is input from a stranger: what it does not say right is as by default. */
export function settingsOf(fragment: string): Settings {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const seed = Number(fields.get("seed") ?? DEFAULTS.seed);
  const good = Number.isInteger(seed) && seed >= 0 && seed <= MOST_SEED;
  return {
    mechanism: choiceOf(fields.get("mechanism") ?? "").id,
    seed: good ? seed : DEFAULTS.seed,
  };
}

export function fragmentOf({ mechanism, seed }: Settings): string {
  const fields = new URLSearchParams();
  if (mechanism !== DEFAULTS.mechanism) fields.set("mechanism", mechanism);
  if (seed !== DEFAULTS.seed) fields.set("seed", String(seed));
  return fields.size > 0 ? `#${fields}` : "";
}
