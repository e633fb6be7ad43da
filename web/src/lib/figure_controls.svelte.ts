// What was set in a crafted figure by name, so that a link can say it: sliders and scrubbers by
// themselves, pinned cells and all else where the page asks for it.
import { getContext, onMount, untrack } from "svelte";
import { figureFromFragment } from "./fragment.js";
import { cellInLink, linkCell } from "./link_cell.js";
import type { Cell } from "./matrix.js";
import { inEnglish } from "./messages.js";

/** A state of a figure, as the text that a link has of it. */
interface Linked {
  /** As the page begins: a link then says nothing. */
  resting: () => string;
  text: () => string;
  /** A link is input from a stranger: what does not fit must change nothing. */
  set: (text: string) => void;
}

interface LinkedNumber {
  min: number;
  max: number;
  /** Values are whole numbers of steps above `min`. */
  step: number;
  resting: number;
  value: number;
}

/** Of a step, for decimal fractions such as 0.1. */
const STEP_SLACK = 1e-6;

/** The value of the control that a link asks for, or null: figures take no other ones. */
function askedOf({ min, max, step }: LinkedNumber, text: string): number | null {
  const asked = text.trim() === "" ? Number.NaN : Number(text);
  const steps = Math.round((asked - min) / step);
  const isStep = Math.abs((asked - min) / step - steps) <= STEP_SLACK;
  return isStep && asked >= min && asked <= max
    ? Number((min + steps * step).toPrecision(12))
    : null;
}

/** The same in every language: links are shared across them. */
const nameOf = (label: string): string =>
  inEnglish(label)
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-");

class FigureControls {
  /** Those that do not rest. */
  moved = $state.raw<Readonly<Record<string, string>>>({});
  private readonly states = new Map<string, Linked>();
  private asked = figureFromFragment(location.hash);

  /** Where a link wants them; the others rest. */
  follow(fragment: string): void {
    this.asked = figureFromFragment(fragment);
    for (const [name, { resting, set }] of this.states) set(this.asked[name] ?? resting());
  }

  /** Returns how the state leaves. */
  add(name: string, state: Linked): () => void {
    this.states.set(name, state);
    const asked = this.asked[name];
    if (asked !== undefined) state.set(asked);
    return () => {
      this.states.delete(name);
    };
  }

  /** All of them as they are now. */
  now(): Record<string, string> {
    return Object.fromEntries([...this.states].map(([name, { text }]) => [name, text()]));
  }

  report(name: string, text: string, resting: string): void {
    if (this.moved[name] === (text === resting ? undefined : text)) return;
    const { [name]: _, ...others } = this.moved;
    this.moved = text === resting ? others : { ...others, [name]: text };
  }
}

export const figureControls = new FigureControls();

/** What a control needs of its frame: set by CraftedFrame. */
export const IN_FIGURE = Symbol("in a crafted figure");

/** Keeps a state of a figure in the page's link. Called while a component is made. */
export function linked(name: string, state: Linked): void {
  onMount(() => figureControls.add(name, state));
  $effect(() => {
    const text = state.text();
    const resting = state.resting();
    untrack(() => figureControls.report(name, text, resting));
  });
}

/** The same of a control, by its label; outside of figures links do not know it. */
export function linkedControl(
  label: string,
  control: () => LinkedNumber,
  move: (value: number) => void,
): void {
  if (!getContext(IN_FIGURE)) return;
  linked(nameOf(label), {
    resting: () => String(control().resting),
    text: () => String(control().value),
    set: (text) => {
      const asked = askedOf(control(), text);
      if (asked !== null) move(asked);
    },
  });
}

const NONE = "none";
const cellText = (cell: Cell | null) => (cell ? linkCell(cell) : NONE);

/** The same of a pinned cell, "3,4" from 1; `inside` says whether there is such a cell. */
export function linkedCell(
  name: string,
  resting: Cell | null,
  cell: () => Cell | null,
  inside: (cell: Cell) => boolean,
  pin: (cell: Cell | null) => void,
): void {
  linked(name, {
    resting: () => cellText(resting),
    text: () => cellText(cell()),
    set: (text) => {
      const asked = cellInLink(text);
      if (text === NONE) pin(null);
      else if (asked && inside(asked)) pin(asked);
    },
  });
}
