// The tasks by the names that addresses have for them.
import { reverseWords, sortWords } from "./alignment/words.js";
import { cardsWords } from "./cards/words.js";
import { copyingWords } from "./copying/words.js";
import { regressionWords } from "./regression/words.js";
import type { TaskId } from "./settings.js";
import type { TaskWords } from "./words.js";

export const TASKS: Readonly<Record<TaskId, TaskWords>> = {
  copy: copyingWords,
  reverse: reverseWords,
  sort: sortWords,
  cards: cardsWords,
  regression: regressionWords,
};
