// A section of the page and what was chosen there, in the address: "#peers", "#peers&v=1&run=<file>&mask=causal".
// A link is input from a stranger: a section takes what it has, and leaves the rest.

export const KINDS = ["decode", "backward", "patterns", "steps"] as const;
const PARTS = ["peers", "growth", "mechanisms", ...KINDS, "gradients"] as const;
export type Part = (typeof PARTS)[number];

/** What was chosen in a section, by name; `run` is a file without ".json". */
export type Chosen = Readonly<Record<string, string>>;

const VERSION = "1";
const MAX_LENGTH = 512;

const isPart = (text: string): text is Part => (PARTS as readonly string[]).includes(text);

export function sectionInFragment(fragment: string): { part: Part | null; chosen: Chosen } {
  const [part = "", ...rest] = fragment.slice(1, MAX_LENGTH).split("&");
  if (!isPart(part)) return { part: null, chosen: {} };
  const { v, ...chosen } = Object.fromEntries(new URLSearchParams(rest.join("&")));
  return { part, chosen: v === VERSION ? chosen : {} };
}

/** With "#". */
export function sectionFragment(part: Part, chosen: Chosen): string {
  const fields = Object.entries(chosen);
  if (fields.length === 0) return `#${part}`;
  return `#${part}&${new URLSearchParams([["v", VERSION], ...fields])}`;
}

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
