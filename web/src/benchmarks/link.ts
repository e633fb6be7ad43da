// A section of the page and what was chosen in it and in the others, in the address: "#peers",
// "#peers&v=1&run=<file>&mask=causal&growth.mechanism=linear".
// A link is input from a stranger: a section takes what it has, and leaves the rest.

export const KINDS = ["decode", "backward", "patterns", "steps"] as const;
const PARTS = ["peers", "growth", "mechanisms", ...KINDS, "gradients"] as const;
export type Part = (typeof PARTS)[number];

/** What was chosen in a section, by name; `run` is a file without ".json". */
export type Chosen = Readonly<Record<string, string>>;

const VERSION = "1";
const MAX_LENGTH = 4096;

const isPart = (text: string | undefined): text is Part =>
  (PARTS as readonly (string | undefined)[]).includes(text);

/** What is chosen in each section where something is. */
export type All = Readonly<Partial<Record<Part, Chosen>>>;

export interface Linked {
  /** The section that a link leads to. */
  part: Part | null;
  all: All;
}

/** Fields of the section that is named first have their names alone, those of others "growth.mechanism". */
export function stateInFragment(fragment: string): Linked {
  const [first = "", ...rest] = fragment.slice(1, MAX_LENGTH).split("&");
  if (!isPart(first)) return { part: null, all: {} };
  const { v, ...fields } = Object.fromEntries(new URLSearchParams(rest.join("&")));
  const all: Partial<Record<Part, Chosen>> = {};
  for (const [field, value] of v === VERSION ? Object.entries(fields) : []) {
    const [other, name] = field.split(".", 2);
    const [part, key] = name === undefined ? [first, field] : [other, name];
    if (isPart(part)) all[part] = { ...all[part], [key]: value };
  }
  return { part: first, all };
}

/** With "#"; `first` is the section that the link leads to. */
export function stateFragment(first: Part, all: All): string {
  const others = PARTS.filter((part) => part !== first).flatMap((part) =>
    Object.entries(all[part] ?? {}).map(([key, value]) => [`${part}.${key}`, value]),
  );
  const fields = [...Object.entries(all[first] ?? {}), ...others];
  if (fields.length === 0) return `#${first}`;
  return `#${first}&${new URLSearchParams([["v", VERSION], ...fields])}`;
}

/** A link to one section alone, as it is copied. */
export const sectionFragment = (part: Part, chosen: Chosen): string =>
  stateFragment(part, { [part]: chosen });

const nameOf = ({ file }: { file: string }): string => file.replace(/\.json$/, "");

/** Its place among the runs; the first where there is none of that name. */
export const runAsked = (runs: readonly { file: string }[], { run }: Chosen): number =>
  Math.max(
    0,
    runs.findIndex((own) => nameOf(own) === run),
  );

/** The first run is what a section begins with. */
export const runChosen = (runs: readonly { file: string }[], index: number): Chosen =>
  index > 0 ? { run: nameOf(runs[index] as { file: string }) } : {};
