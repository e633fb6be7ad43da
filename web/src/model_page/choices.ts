// Texts to begin with, and what the colour of tokens may show.
import { t } from "../lib/messages.js";
import { facts } from "./shipped.js";

/** Texts are English in every language: the model knows no other. */
export const EXAMPLES = [
  { value: "In the beginning God created the heaven and the", words: t`the first verse` },
  {
    value: "And Moses went unto Aaron, and Aaron went unto Moses. And Moses went unto",
    words: t`names again`,
  },
  { value: facts.passage.text, words: t`a chapter that it never saw` },
] as const;

export type Looks = "mean" | "head" | "rollout";

export const LOOKS: readonly { value: Looks; words: string }[] = [
  { value: "mean", words: t`all heads` },
  { value: "head", words: t`the chosen head` },
  { value: "rollout", words: t`through all layers` },
];
