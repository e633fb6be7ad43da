// What heed refuses, said where it was asked for: under the control that caused it.
import type { Parameter } from "heed";

export interface Refusal {
  /** The control that caused it; null where none can be named. */
  name: string | null;
  /** heed's own words, with the names of the controls. */
  message: string;
}

/** heed says "window.left" where a program may write that; the control is "windowLeft". */
const DOTTED = /\b(window|dropout)\.([a-z])/g;

/** A message begins with the argument that is wrong; `last` is what was changed last. */
export function refusalOf(
  error: unknown,
  controls: readonly Parameter[],
  last: string | null,
): Refusal {
  const own = error instanceof Error ? error.message : String(error);
  const message = own.replace(DOTTED, (_, of, letter) => of + letter.toUpperCase());
  const named = /^\w+/.exec(message)?.[0];
  const name = [named, last].find((one) => controls.some((row) => row.name === one)) ?? null;
  return { name, message };
}
