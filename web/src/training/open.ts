// Begins a training in the worker, with the part of heed that it needs: each is loaded once.
import type { Heed } from "heed";
import type { Training } from "heed/training";
import { alignment } from "./alignment/session.js";
import { cards } from "./cards/session.js";
import { copying } from "./copying/session.js";
import { ModelSession, type ModelTask } from "./model_session.js";
import { RegressionSession } from "./regression/session.js";
import type { Session } from "./session.js";
import type { Settings, TaskId } from "./settings.js";

export interface Opened {
  session: Session;
  /** What computes. */
  kit: Training | Heed;
}

let training: Promise<Training> | undefined;
let heed: Promise<Heed> | undefined;

const loadTraining = async (): Promise<Training> =>
  (await import("heed/training")).load({ threads: 1 });
const loadHeed = async (): Promise<Heed> => (await import("heed")).load({ threads: 1 });

const MODELS: Record<Exclude<TaskId, "regression">, (mechanism: string) => ModelTask> = {
  copy: copying,
  reverse: (mechanism) => alignment("reverse", mechanism),
  sort: (mechanism) => alignment("sort", mechanism),
  cards,
};

export async function openSession({ task, mechanism, seed }: Settings): Promise<Opened> {
  if (task === "regression") {
    heed ??= loadHeed();
    const kit = await heed;
    return { kit, session: new RegressionSession(kit, mechanism, seed) };
  }
  training ??= loadTraining();
  const kit = await training;
  return { kit, session: new ModelSession(kit, MODELS[task](mechanism), seed) };
}
