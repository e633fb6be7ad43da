// What may be chosen on the training page, and what an address says of it:
// "#task=sort&mechanism=sigmoid&seed=7&plot=accuracy&head=2&pin=3,4".
import { cellInLink, indexIn, linkCell } from "../lib/link_cell.js";
import type { Cell } from "../lib/matrix.js";
import { variants as alignment } from "./alignment/variants.js";
import { variants as cards } from "./cards/variants.js";
import { variants as copying } from "./copying/variants.js";
import { variants as regression } from "./regression/variants.js";
import type { Variant, Variants } from "./variants.js";
import type { MeasureId } from "./words.js";

/** What each task may be learned with. */
const VARIANTS = { copy: copying, reverse: alignment, sort: alignment, cards, regression };

export type TaskId = keyof typeof VARIANTS;

export interface Settings {
  task: TaskId;
  /** A variant of the task, by its id. */
  mechanism: string;
  seed: number;
}

/** What is looked at. */
export interface Shown {
  /** What is plotted; of what a task does not have, its loss. */
  measure: MeasureId;
  /** Absent: the one that shows most. */
  head: number | null;
  pin: Cell | null;
}

const MEASURES: readonly MeasureId[] = ["loss", "accuracy", "width"];
const FIRST_MEASURE = "loss";
export const FIRST_SHOWN: Shown = { measure: FIRST_MEASURE, head: null, pin: null };

const MAX_LENGTH = 512;
const VERSION = "1";
const FIRST_TASK = "copy";
export const FIRST_SEED = 1;
export const MOST_SEED = 999_999;

const variantsOf = (task: TaskId): Variants<Variant> => VARIANTS[task];

/** A task as it begins. */
export const defaultsOf = (task: TaskId): Settings => ({
  task,
  mechanism: variantsOf(task).all[0].id,
  seed: FIRST_SEED,
});

/** Links that name no version are of the first; of others nothing is read. */
function fieldsOf(fragment: string): URLSearchParams {
  const fields = new URLSearchParams(
    fragment.length > MAX_LENGTH ? "" : fragment.replace(/^#/, ""),
  );
  return (fields.get("v") ?? VERSION) === VERSION ? fields : new URLSearchParams();
}

/** An address is input from a stranger: what it does not say right is as by default. */
export function settingsOf(fragment: string): Settings {
  const fields = fieldsOf(fragment);
  const given = fields.get("task") ?? "";
  const task = Object.hasOwn(VARIANTS, given) ? (given as TaskId) : FIRST_TASK;
  const seed = Number(fields.get("seed") ?? FIRST_SEED);
  const good = Number.isInteger(seed) && seed >= 0 && seed <= MOST_SEED;
  return {
    task,
    mechanism: variantsOf(task).of(fields.get("mechanism") ?? "").id,
    seed: good ? seed : FIRST_SEED,
  };
}

/** As above. A head or a cell that is not there is not shown. */
export function shownOf(fragment: string): Shown {
  const fields = fieldsOf(fragment);
  const head = indexIn(fields.get("head"));
  return {
    measure: MEASURES.find((id) => id === fields.get("plot")) ?? FIRST_MEASURE,
    head: Number.isNaN(head) ? null : head,
    pin: cellInLink(fields.get("pin")),
  };
}

/** With "#"; "" where nothing differs from the defaults. */
export function fragmentOf({ task, mechanism, seed }: Settings, shown: Shown): string {
  const fields = new URLSearchParams();
  if (task !== FIRST_TASK) fields.set("task", task);
  if (mechanism !== defaultsOf(task).mechanism) fields.set("mechanism", mechanism);
  if (seed !== FIRST_SEED) fields.set("seed", String(seed));
  if (shown.measure !== FIRST_MEASURE) fields.set("plot", shown.measure);
  if (shown.head !== null) fields.set("head", String(shown.head + 1));
  if (shown.pin) fields.set("pin", linkCell(shown.pin));
  return fields.size > 0 ? `#${fields}` : "";
}
