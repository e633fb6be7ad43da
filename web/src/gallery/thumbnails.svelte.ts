// The pictures of the cards: computed once each, one in a pause of the browser, those in sight first.
import type { Parameter } from "heed";
import { SvelteMap } from "svelte/reactivity";
import { core } from "../lib/core.svelte.js";
import { computeExample, drawExample, EXAMPLE_SEED } from "../lib/example.js";
import type { Matrix } from "../lib/matrix.js";
import { matrixOfPicture } from "../lib/picture_matrix.js";

const WAIT_MS = 60;

class Thumbnails {
  private readonly made = new SvelteMap<string, Matrix>();
  private readonly wanted: string[] = [];
  private working = false;

  of(id: string): Matrix | undefined {
    return this.made.get(id);
  }

  want(id: string): void {
    if (this.made.has(id) || this.wanted.includes(id)) return;
    this.wanted.push(id);
    this.work();
  }

  private async work(): Promise<void> {
    if (this.working) return;
    this.working = true;
    while (this.wanted.length > 0) {
      await this.pause();
      if (core.heed) this.make(this.wanted.shift() as string);
      else if (core.failure) break;
    }
    this.working = false;
  }

  private pause(): Promise<unknown> {
    // Not every browser has idle callbacks.
    if (!core.heed || !("requestIdleCallback" in window)) {
      return new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    }
    return new Promise((resolve) => requestIdleCallback(resolve, { timeout: WAIT_MS }));
  }

  private make(id: string): void {
    const { heed } = core;
    const mechanism = heed?.mechanisms.find((row) => row.id === id);
    if (!heed || !mechanism) return;
    const parameters = new Map(heed.parameters.map((row): [string, Parameter] => [row.name, row]));
    const example = drawExample(mechanism, parameters, EXAMPLE_SEED);
    this.made.set(id, matrixOfPicture(computeExample(heed, mechanism, example, {}).picture));
  }
}

export const thumbnails = new Thumbnails();
