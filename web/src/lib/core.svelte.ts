// Loads heed once for the whole page. Nothing is computed before it is ready, and nothing else
// computes in its place: if WebAssembly cannot run, the page says so.

import { type Heed, load } from "heed";
import { backendWords } from "./backend.js";
import { t } from "./messages.js";
import { loadProblem } from "./site.js";

class Core {
  heed = $state.raw<Heed | null>(null);
  failure = $state<string | null>(null);

  /** "relaxed SIMD, 1 thread". */
  readonly backend = $derived(this.heed ? backendWords(this.heed) : t`loading`);

  async start(): Promise<void> {
    try {
      this.heed = await load();
    } catch (error) {
      this.failure = loadProblem(error);
    }
  }
}

export const core = new Core();
