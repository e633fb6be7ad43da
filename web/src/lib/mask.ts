// Who may look at whom: rules (past only, a window, the first n words) plus painted cells.
import { t } from "./messages.js";
import { MAX_TOKENS } from "./tokens.js";

/** Everything that decides visibility. `null` means the rule is off. */
export interface MaskRules {
  causal: boolean;
  left: number | null;
  right: number | null;
  /** Only the first `first` words may be looked at. */
  first: number | null;
  /** Painted-out cells, as cellKey(row, column). */
  hidden: ReadonlySet<number>;
}

export const EVERYTHING: MaskRules = {
  causal: false,
  left: null,
  right: null,
  first: null,
  hidden: new Set(),
};

export function cellKey(row: number, column: number): number {
  return row * MAX_TOKENS + column;
}

/** The keep mask of the painted cells, [length, length], 1 = may look; undefined if none is. */
export function paintedKeep(
  hidden: ReadonlySet<number>,
  length: number,
): Uint8Array<ArrayBuffer> | undefined {
  const keep = new Uint8Array(length * length).fill(1);
  let any = false;
  for (const key of hidden) {
    const row = Math.floor(key / MAX_TOKENS);
    const column = key % MAX_TOKENS;
    if (row < length && column < length) {
      keep[row * length + column] = 0;
      any = true;
    }
  }
  return any ? keep : undefined;
}

/** Why (row, column) is hidden, as a phrase that completes "Hidden by ..."; null if visible. */
export function hiddenBy(rules: MaskRules, row: number, column: number): string | null {
  if (rules.hidden.has(cellKey(row, column))) return t`a painted cell`;
  return hiddenByRule(rules, row, column);
}

/** As hiddenBy, for the rules alone: painting cannot show what a rule hides. */
export function hiddenByRule(rules: MaskRules, row: number, column: number): string | null {
  if (rules.causal && column > row) return t`the rule “only its past”`;
  if (rules.first !== null && column >= rules.first) {
    return t`the rule “only the first ${rules.first}”`;
  }
  if (rules.left !== null && column < row - rules.left) return t`the left window`;
  if (rules.right !== null && column > row + rules.right) return t`the right window`;
  return null;
}

/** Every hidden cell of a length x length matrix as painted cells: rules become paint. */
export function paintRules(rules: MaskRules, length: number): Set<number> {
  const hidden = new Set(rules.hidden);
  for (let row = 0; row < length; row++) {
    for (let column = 0; column < length; column++) {
      if (hiddenByRule(rules, row, column)) hidden.add(cellKey(row, column));
    }
  }
  return hidden;
}
