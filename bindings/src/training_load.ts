import { Heap } from "./heap.js";
import type { Choice } from "./heed.js";
import type { LoadOptions } from "./load_options.js";
import { open, openBest } from "./open.js";
import type { TrainingPlatform } from "./platform.js";
import type { TrainingGlue } from "./training_glue.js";
import { selfTestTraining, Training } from "./training_instance.js";
import { VERSION } from "./version.js";

async function start(
  choice: Choice,
  options: LoadOptions,
  platform: TrainingPlatform,
): Promise<Training> {
  const glue = await open<TrainingGlue>(choice.variant, options, platform, choice.threads);
  const heap = new Heap(glue);
  // Its workers live on until they are stopped.
  try {
    heap.callChecked((module) => module.setThreads(choice.threads));
    const training = new Training(heap, choice, VERSION);
    selfTestTraining(training);
    return training;
  } catch (error) {
    heap.close();
    throw error;
  }
}

/** The `load` of heed/training on a platform. */
export function openTraining(
  platform: TrainingPlatform,
  options: LoadOptions | undefined,
): Promise<Training> {
  return openBest(options, platform, (choice, given) => start(choice, given, platform));
}
