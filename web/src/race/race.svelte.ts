// A race as the page sees it: asked for, under way, finished or stopped.
import { t } from "../lib/messages.js";
import { loadProblem } from "../lib/site.js";
import type { RaceRequest } from "./request.js";
import type { Progress, RaceRow } from "./run.js";

/** What was raced on, for the caption and the files. */
export interface Track {
  simd: string;
  threads: number;
  version: string;
  /** Milliseconds. */
  clockStep: number;
}

type News =
  | { row: RaceRow }
  | { progress: Progress }
  | { track: Track }
  | { problem: string }
  | { finished: true };

class Race {
  rows = $state.raw<readonly RaceRow[]>([]);
  progress = $state.raw<Progress | null>(null);
  track = $state.raw<Track | null>(null);
  problem = $state<string | null>(null);
  phase = $state<"before" | "running" | "finished" | "stopped">("before");
  /** Whether the page was out of sight meanwhile. */
  wasHidden = $state(false);
  /** When it began. */
  date = $state("");
  private worker: Worker | undefined;

  start(request: RaceRequest): void {
    this.end();
    this.rows = [];
    this.progress = null;
    this.track = null;
    this.problem = null;
    this.wasHidden = document.hidden;
    this.date = new Date().toISOString();
    this.phase = "running";
    this.worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }: MessageEvent<News>) => this.hear(data);
    this.worker.onerror = (event) =>
      this.hear({ problem: event.message || t`the worker did not start` });
    this.worker.postMessage($state.snapshot(request));
  }

  stop(): void {
    if (this.phase !== "running") return;
    this.end();
    this.phase = "stopped";
  }

  private end(): void {
    this.worker?.terminate();
    this.worker = undefined;
    this.progress = null;
  }

  private hear(news: News): void {
    if ("row" in news) this.rows = [...this.rows, news.row];
    if ("progress" in news) this.progress = news.progress;
    if ("track" in news) this.track = news.track;
    if ("problem" in news) {
      // Before the track is known heed is still on its way.
      this.problem = this.track ? news.problem : loadProblem(news.problem);
      this.stop();
    }
    if ("finished" in news) {
      this.end();
      this.phase = "finished";
    }
  }
}

export const raceState = new Race();
