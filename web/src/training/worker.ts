// Training in a worker: a step never holds up the page, and the page is heard between two steps.
import { openSession } from "./open.js";
import type { Session } from "./session.js";
import type { Settings } from "./settings.js";

export type Order =
  /** All news until the next of these carry its number. */
  | { begin: Settings; number: number }
  | { run: boolean }
  | { step: true }
  /** Milliseconds between two steps. */
  | { pace: number };

let run = 0;
const tell = (news: object) => self.postMessage({ run, ...news });
let session: Session | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;
let pace = 0;
let lastLook = 0;
/** Files are on their way: what fails now has not arrived. */
let loading = false;

function look(): void {
  if (session === undefined) return;
  lastLook = performance.now();
  tell({ look: session.look() });
}

/** One step; false where training has ended, or stands at the end of its schedule. */
function advance(): boolean {
  if (session === undefined) return false;
  const begin = performance.now();
  const result = session.step();
  tell({ point: { ...result, milliseconds: performance.now() - begin } });
  const done = result.diverged || result.step === session.steps;
  if (done || performance.now() - lastLook >= session.lookEvery) look();
  return !done;
}

function stop(): void {
  clearTimeout(timer);
  timer = undefined;
}

function goOn(): void {
  stop();
  if (advance()) {
    timer = setTimeout(guarded(goOn), pace);
  } else {
    tell({ paused: true });
  }
}

function guarded(work: () => void | Promise<void>): () => Promise<void> {
  return async () => {
    try {
      await work();
    } catch (error) {
      stop();
      tell({ problem: error instanceof Error ? error.message : String(error), loading });
      loading = false;
    }
  };
}

async function begin(settings: Settings, number: number): Promise<void> {
  stop();
  run = number;
  loading = true;
  const opened = await openSession(settings);
  loading = false;
  session?.dispose();
  session = opened.session;
  const { simd, version, threads } = opened.kit;
  tell({ kit: { simd, version, threads, parameters: session.parameters } });
  look();
}

function obey(order: Order): void | Promise<void> {
  if ("begin" in order) return begin(order.begin, order.number);
  if ("pace" in order) {
    pace = order.pace;
    if (timer !== undefined) goOn();
    return;
  }
  if ("run" in order && order.run) return goOn();
  stop();
  if ("step" in order) advance();
  look();
}

// One after the other: an order that comes while the kit is loading waits for its turn.
let turn: Promise<void> = Promise.resolve();
self.onmessage = ({ data }: MessageEvent<Order>) => {
  turn = turn.then(guarded(() => obey(data)));
};
