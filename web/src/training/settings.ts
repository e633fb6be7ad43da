// What may be chosen on the training page, and what an address says of it.
import { variants as alignment } from "./alignment/variants.js";
import { variants as cards } from "./cards/variants.js";
import { variants as copying } from "./copying/variants.js";
import { variants as regression } from "./regression/variants.js";
import type { Variant, Variants } from "./variants.js";

/** What each task may be learned with. */
const VARIANTS = { copy: copying, reverse: alignment, sort: alignment, cards, regression };

export type TaskId = keyof typeof VARIANTS;

export interface Settings {
  task: TaskId;
  /** A variant of the task, by its id. */
  mechanism: string;
  seed: number;
}

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

/** An address is input from a stranger: what it does not say right is as by default. */
export function settingsOf(fragment: string): Settings {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
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

export function fragmentOf({ task, mechanism, seed }: Settings): string {
  const fields = new URLSearchParams();
  if (task !== FIRST_TASK) fields.set("task", task);
  if (mechanism !== defaultsOf(task).mechanism) fields.set("mechanism", mechanism);
  if (seed !== FIRST_SEED) fields.set("seed", String(seed));
  return fields.size > 0 ? `#${fields}` : "";
}
