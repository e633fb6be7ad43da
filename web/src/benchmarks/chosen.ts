// What is chosen in all sections of the page, as its address has it.
import { writeAddress } from "../lib/address.svelte.js";
import {
  type All,
  type Chosen,
  type Linked,
  type Part,
  stateFragment,
  stateInFragment,
} from "./link.js";

let all: All = {};

/** What a link asks for takes the place of what was chosen. */
export function follow(fragment: string): Linked {
  const linked = stateInFragment(fragment);
  all = linked.all;
  return linked;
}

/** The section that was changed last is the one that the address leads to. */
export function remember(part: Part, chosen: Chosen): void {
  all = { ...all, [part]: chosen };
  writeAddress(stateFragment(part, all));
}

/** Another section to lead to, with all choices as they are. */
export const leadTo = (part: Part): void => writeAddress(stateFragment(part, all));
