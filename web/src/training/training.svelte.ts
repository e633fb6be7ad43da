// Training as the page sees it.
import { t } from "../lib/messages.js";
import { loadProblem } from "../lib/site.js";
import type { Known } from "./curve.js";
import type { Look, Step } from "./session.js";
import type { Settings } from "./settings.js";
import type { Order } from "./worker.js";

export interface Point extends Step {
  milliseconds: number;
}

export interface Kit {
  simd: string;
  version: string;
  threads: number;
  parameters: number;
}

/** What the worker says, of the run that it has begun. */
type News = { run: number } & (
  | { kit: Kit }
  | { point: Point }
  | { look: Look }
  /** By itself: the schedule is over, or training diverged. */
  | { paused: true }
  /** `loading`: what was needed has not arrived. */
  | { problem: string; loading: boolean }
);

class TrainingState {
  points = $state.raw<readonly Point[]>([]);
  looks = $state.raw<readonly Known[]>([]);
  look = $state.raw<Look | null>(null);
  kit = $state.raw<Kit | null>(null);
  problem = $state<string | null>(null);
  /** The problem is that something has not arrived: it may, if asked for again. */
  isMissing = $state(false);
  running = $state(false);
  /** Of `begin` calls: news of an earlier model may still be under way. */
  private begun = 0;
  private worker: Worker | undefined;

  /** A new model; it waits for `run` or `step`. */
  begin(settings: Settings): void {
    // A worker that failed, perhaps to load, is not asked again.
    if (this.problem !== null) this.end();
    this.begun++;
    this.points = [];
    this.looks = [];
    this.look = null;
    this.problem = null;
    this.running = false;
    this.order({ begin: $state.snapshot(settings), number: this.begun });
  }

  run(on: boolean): void {
    this.running = on;
    this.order({ run: on });
  }

  step(): void {
    this.running = false;
    this.order({ step: true });
  }

  pace(milliseconds: number): void {
    this.order({ pace: milliseconds });
  }

  end(): void {
    this.worker?.terminate();
    this.worker = undefined;
  }

  private order(order: Order): void {
    this.worker ??= this.start();
    this.worker.postMessage(order);
  }

  private start(): Worker {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }: MessageEvent<News>) => this.hear(data);
    worker.onerror = (event) =>
      this.hear({
        run: this.begun,
        problem: event.message || t`the worker did not start`,
        loading: !event.message,
      });
    return worker;
  }

  private hear(news: News): void {
    if (news.run !== this.begun) return;
    if ("kit" in news) this.kit = news.kit;
    if ("point" in news) this.points = [...this.points, news.point];
    if ("paused" in news) this.running = false;
    if ("look" in news) {
      const { step, accuracy, heldOut } = news.look;
      const known = { step, accuracy, ...(heldOut !== undefined && { heldOut }) };
      this.look = news.look;
      this.looks = [...this.looks.filter((look) => look.step < step), known];
    }
    if ("problem" in news) {
      this.problem = news.loading ? loadProblem(news.problem) : news.problem;
      this.isMissing = news.loading;
      this.running = false;
    }
  }
}

export const training = new TrainingState();
