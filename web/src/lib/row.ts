// A row of weights in order, and how spread it is.

export interface RowEntry {
  index: number;
  weight: number;
  score: number | null;
  /** 1 = the largest; equal weights share the better rank. */
  rank: number;
  /** The weight over the row's largest: the length of a bar. */
  share: number;
}

/** The `top` largest weights; a column in focus that is not among them takes the last place. */
export function inspectRow(
  weights: ArrayLike<number>,
  scores: ArrayLike<number> | null,
  top: number,
  focus: number | null,
): RowEntry[] {
  const order = Array.from(weights, (_, index) => index)
    .filter((index) => scores?.[index] !== -Infinity)
    .sort((a, b) => (weights[b] as number) - (weights[a] as number) || a - b);
  const largest = Math.max(Number.MIN_VALUE, weights[order[0] ?? 0] ?? 0);
  const entries = order.map((index, place): RowEntry => {
    const weight = weights[index] as number;
    return {
      index,
      weight,
      score: scores?.[index] ?? null,
      rank: place + 1,
      share: weight / largest,
    };
  });
  entries.forEach((entry, place) => {
    const before = entries[place - 1];
    if (before && before.weight === entry.weight) entry.rank = before.rank;
  });
  const shown = entries.slice(0, top);
  const inFocus = entries.find(({ index }) => index === focus);
  if (inFocus && !shown.includes(inFocus)) shown[top - 1] = inFocus;
  return shown.map((entry) => ({ ...entry, share: Math.max(0, entry.share) }));
}

/** The mean over rows of -sum p log2 p, in bits; empty rows count as 0. */
export function meanEntropy(weights: ArrayLike<number>, rows: number, columns: number): number {
  let total = 0;
  for (let at = 0; at < rows * columns; at++) {
    const p = weights[at] as number;
    if (p > 0) total -= p * Math.log2(p);
  }
  return total / Math.max(1, rows);
}
