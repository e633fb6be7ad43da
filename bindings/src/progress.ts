import { fail } from "./errors.js";
import type { LoadProgress } from "./load_options.js";

/** The caller's `onProgress`, never in the way of loading; undefined without one. */
export function progressOf(onProgress: unknown): ((progress: LoadProgress) => void) | undefined {
  if (onProgress === undefined) return undefined;
  if (typeof onProgress !== "function") fail("option", "onProgress", onProgress, "a function");
  return (progress) => {
    try {
      onProgress(progress);
    } catch {
      // A progress bar that fails is no reason to have no heed.
    }
  };
}
