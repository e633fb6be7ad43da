// The families of mechanisms, in the order in which a reader meets them.

export interface Family {
  family: string;
  title: string;
  sentence: string;
}

export const FAMILIES: readonly Family[] = [
  {
    family: "exact",
    title: "Exact attention",
    sentence: "Every query meets every key that it may see: scores, modifiers, masks, normalisers.",
  },
  {
    family: "selective",
    title: "Selective attention",
    sentence: "First choose a few keys by hash, cluster or block, then attend to those.",
  },
  {
    family: "low_rank",
    title: "Low rank",
    sentence: "Make keys and values few, or the matrix of weights a product of small ones.",
  },
  {
    family: "recurrent",
    title: "Recurrent",
    sentence: "A matrix of fixed size is read and rewritten at every token.",
  },
  {
    family: "layer",
    title: "Layers",
    sentence: "Projections around a mechanism, as networks use it.",
  },
  {
    family: "position",
    title: "Positions",
    sentence: "How a token tells where it stands.",
  },
];

export const familyTitle = (family: string): string =>
  FAMILIES.find((row) => row.family === family)?.title ?? family;

/** Growth of time with length, as a filter says it. */
export const COSTS: Readonly<Record<string, string>> = {
  linear: "linear",
  "n log n": "n log n",
  pattern: "with the pattern",
  edges: "with the edges",
  quadratic: "quadratic",
};
