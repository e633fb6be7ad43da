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

/** The indexes of the `top` largest that `isSeen`, in order; of equal ones the first comes first. */
function largestOf(
  weights: ArrayLike<number>,
  top: number,
  isSeen: (index: number) => boolean,
): number[] {
  const order: number[] = [];
  for (let index = 0; index < weights.length; index++) {
    const weight = weights[index] as number;
    if (!isSeen(index)) continue;
    if (order.length === top && weight <= (weights[order[top - 1] as number] as number)) continue;
    let place = order.length;
    while (place > 0 && (weights[order[place - 1] as number] as number) < weight) place--;
    order.splice(place, 0, index);
    order.length = Math.min(top, order.length);
  }
  return order;
}

/**
 * The `top` largest weights of keys that are seen; a column in focus that is not among them takes the last
 * place. A key is hidden by a score of -Infinity, or where `hidden` says so.
 */
export function inspectRow(
  weights: ArrayLike<number>,
  scores: ArrayLike<number> | null,
  top: number,
  focus: number | null,
  hidden: (column: number) => boolean = () => false,
): RowEntry[] {
  const isSeen = (index: number) => scores?.[index] !== -Infinity && !hidden(index);
  const shown = largestOf(weights, top, isSeen);
  const inFocus = focus !== null && focus < weights.length && isSeen(focus);
  if (inFocus && !shown.includes(focus)) shown[Math.min(top - 1, shown.length)] = focus;
  const largest = Math.max(Number.MIN_VALUE, weights[shown[0] ?? 0] ?? 0);
  return shown.map((index) => {
    const weight = weights[index] as number;
    let rank = 1;
    for (let other = 0; other < weights.length; other++) {
      if ((weights[other] as number) > weight && isSeen(other)) rank++;
    }
    const share = Math.max(0, weight / largest);
    return { index, weight, score: scores?.[index] ?? null, rank, share };
  });
}

/**
 * The mean over rows of -sum p log2 p, in bits, where p is a weight's share of its row: not all mechanisms have
 * rows that sum to 1. Empty rows count as 0.
 */
export function meanEntropy(weights: ArrayLike<number>, rows: number, columns: number): number {
  let total = 0;
  for (let row = 0; row < rows; row++) {
    let [sum, logs] = [0, 0];
    for (let at = row * columns; at < (row + 1) * columns; at++) {
      const weight = weights[at] as number;
      if (weight <= 0) continue;
      sum += weight;
      logs += weight * Math.log2(weight);
    }
    if (sum > 0) total += Math.log2(sum) - logs / sum;
  }
  return total / Math.max(1, rows);
}

/**
 * The mean over rows of sum p |j - i|, in tokens: how far a head looks. The last query stands at the last key, where
 * there are fewer queries. Shares and empty rows as above.
 */
export function meanDistance(weights: ArrayLike<number>, rows: number, columns: number): number {
  let total = 0;
  for (let row = 0; row < rows; row++) {
    let [sum, far] = [0, 0];
    for (let column = 0; column < columns; column++) {
      const weight = weights[row * columns + column] as number;
      if (weight <= 0) continue;
      sum += weight;
      far += weight * Math.abs(column - (row + columns - rows));
    }
    if (sum > 0) total += far / sum;
  }
  return total / Math.max(1, rows);
}
