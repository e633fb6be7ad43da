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

/** Letters of a text. */
export const MOST_TEXT = 4000;

/** How a continuation is drawn. */
export interface Sampling {
  readonly temperature: number;
  /** 0: from all tokens. */
  readonly topK: number;
  readonly seed: number;
}

export const RANGES: Record<keyof Sampling, { least: number; most: number; whole: boolean }> = {
  temperature: { least: 0, most: 1.5, whole: false },
  topK: { least: 0, most: 100, whole: true },
  seed: { least: 0, most: 2 ** 31 - 1, whole: true },
};

export type Looks = "mean" | "head" | "rollout";

export const LOOKS: readonly { value: Looks; words: string }[] = [
  { value: "mean", words: t`all heads` },
  { value: "head", words: t`the chosen head` },
  { value: "rollout", words: t`through all layers` },
];
