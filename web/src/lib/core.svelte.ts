// Loads heed once for the whole page. Nothing is computed before it is ready, and nothing else
// computes in its place: if WebAssembly cannot run, the page says so.

import { type Heed, load } from "heed";
import { t } from "./messages.js";

class Core {
  heed = $state.raw<Heed | null>(null);
  failure = $state<string | null>(null);

  /** "relaxed SIMD, 1 thread". */
  readonly backend = $derived.by(() => {
    if (!this.heed) return "loading";
    const { simd, threads } = this.heed;
    return t`${simd} SIMD, ${threads} ${threads === 1 ? t`thread` : t`threads`}`;
  });

  async start(): Promise<void> {
    try {
      this.heed = await load();
    } catch (error) {
      this.failure = error instanceof Error ? error.message : String(error);
    }
  }
}

export const core = new Core();
