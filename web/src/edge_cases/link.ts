// One edge case and its variant in the address: "#empty_row", "#window&variant=2". Anything else names
// none; a case is also the place of the page that its name leads to.
import { CASES } from "./cases.js";

export interface CaseLink {
  id: string | null;
  variant: number;
}

const MAX_LENGTH = 64;

export function caseInFragment(fragment: string): CaseLink {
  const [id, rest] = fragment.slice(1, MAX_LENGTH).split("&", 2);
  const row = CASES.find((known) => known.id === id);
  const number = Number(rest?.match(/^variant=([1-9])$/)?.[1] ?? 1);
  const variant = row && number <= row.variants.length ? number - 1 : 0;
  return { id: row?.id ?? null, variant };
}

export const caseFragment = (id: string, variant: number): string =>
  variant === 0 ? `#${id}` : `#${id}&variant=${variant + 1}`;
