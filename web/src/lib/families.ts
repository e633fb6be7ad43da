// The families of mechanisms, in the order in which a reader meets them.

import { t } from "./messages.js";
export interface Family {
  family: string;
  title: string;
  sentence: string;
}

export const FAMILIES: readonly Family[] = [
  {
    family: "exact",
    title: t`Exact attention`,
    sentence: t`Every query meets every key that it may see: scores, modifiers, masks, normalisers.`,
  },
  {
    family: "selective",
    title: t`Selective attention`,
    sentence: t`First choose a few keys by hash, cluster or block, then attend to those.`,
  },
  {
    family: "low_rank",
    title: t`Low rank`,
    sentence: t`Make keys and values few, or the matrix of weights a product of small ones.`,
  },
  {
    family: "recurrent",
    title: t`Recurrent`,
    sentence: t`A matrix of fixed size is read and rewritten at every token.`,
  },
  {
    family: "layer",
    title: t`Layers`,
    sentence: t`Projections around a mechanism, as networks use it.`,
  },
  {
    family: "position",
    title: t`Positions`,
    sentence: t`How a token tells where it stands.`,
  },
];

export const familyTitle = (family: string): string =>
  FAMILIES.find((row) => row.family === family)?.title ?? family;

/** Growth of time with length, as a filter says it. */
export const COSTS: Readonly<Record<string, string>> = {
  linear: t`linear`,
  "n log n": "n log n",
  pattern: t`with the pattern`,
  edges: t`with the edges`,
  quadratic: t`quadratic`,
};
