import { HeedError } from "./errors.js";
import type { LoadProgress } from "./load_options.js";
import type { Owner } from "./remote_handles.js";
import type { Call, FromWorker, Handle, Loaded, SentOptions, ToWorker } from "./remote_messages.js";

/** A worker of whatever kind the platform has. */
export interface WorkerPort {
  send(message: ToWorker, transfer: ArrayBuffer[]): void;
  terminate(): void;
  /** Whether the worker keeps its process alive (Node). */
  hold(busy: boolean): void;
}

/** What a worker tells. */
export interface WorkerEvents {
  message(message: FromWorker): void;
  /** It could not be started, or ended without being asked to. */
  failure(cause: unknown): void;
}

export type StartWorker = (events: WorkerEvents) => WorkerPort;

/** The part of an AbortSignal that is used; any signal fits, whatever library declares it. */
export interface Signal {
  readonly aborted: boolean;
  readonly reason?: unknown;
  addEventListener(type: "abort", listener: () => void): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

/** One call on its way. */
interface Waiting {
  readonly call: Call;
  readonly transfer: ArrayBuffer[];
  /** Objects of the worker that the call refers to: they must not be released before it is sent. */
  readonly objects: readonly object[];
  /** The worker that they live in; absent for a call that any worker can answer. */
  readonly generation: number | undefined;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: HeedError) => void;
}

const gone = (what: string): HeedError =>
  new HeedError(
    "disposed",
    `heed: ${what} lived in a worker that has ended; after an abort or a crash make it again`,
  );

/** Calls of one `spawn()`, one at a time, over as many workers as it takes. */
export class Client implements Owner {
  generation = 0;
  closed = false;
  readonly #start: StartWorker;
  readonly #options: SentOptions;
  readonly #report: ((progress: LoadProgress) => void) | undefined;
  readonly #queue: Waiting[] = [];
  #running: Waiting | undefined;
  #port: WorkerPort | undefined;
  #opening: { resolve: (loaded: Loaded) => void; reject: (error: HeedError) => void } | undefined;

  constructor(
    start: StartWorker,
    options: SentOptions,
    report: ((progress: LoadProgress) => void) | undefined,
  ) {
    this.#start = start;
    this.#options = options;
    this.#report = report;
  }

  /** Starts a worker and loads heed in it. Throws HeedError; a later call tries again. */
  open(): Promise<Loaded> {
    return new Promise((resolve, reject) => {
      this.#opening = { resolve, reject };
      try {
        this.#port = this.#start(this.#eventsOf(this.generation));
      } catch (cause) {
        this.#failOpening(cause);
        return;
      }
      this.#port.hold(true);
      const progress = this.#report !== undefined;
      this.#port.send({ kind: "load", options: this.#options, progress }, []);
    });
  }

  /** Answers once the worker has. `objects` are those of the worker that the call refers to. */
  call(
    call: Call,
    transfer: ArrayBuffer[],
    objects: readonly object[],
    signal: Signal | undefined,
  ): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.closed) throw new HeedError("disposed", "heed: this worker was disposed of");
      const bound = call.target !== 0 || objects.length > 0;
      const generation = bound ? this.generation : undefined;
      const abort = (): void => this.#abort(waiting, signal?.reason);
      const settled = (): void => signal?.removeEventListener("abort", abort);
      const waiting: Waiting = {
        call,
        transfer,
        objects,
        generation,
        resolve(value) {
          settled();
          resolve(value);
        },
        reject(error) {
          settled();
          reject(error);
        },
      };
      signal?.addEventListener("abort", abort);
      this.#queue.push(waiting);
      this.#next();
    });
  }

  /** Lets go of an object of the worker that nothing refers to any more. */
  release(handle: Handle, generation: number): void {
    if (generation === this.generation && this.#opening === undefined) {
      this.#port?.send({ kind: "release", handle }, []);
    }
  }

  dispose(): void {
    if (this.closed) return;
    this.closed = true;
    const error = new HeedError("disposed", "heed: this worker was disposed of");
    this.#end();
    this.#opening?.reject(error);
    this.#opening = undefined;
    const { waiting } = this.#takeAll();
    for (const { reject } of waiting) reject(error);
  }

  #takeAll(): { waiting: Waiting[] } {
    const waiting = this.#queue.splice(0);
    if (this.#running !== undefined) waiting.unshift(this.#running);
    this.#running = undefined;
    return { waiting };
  }

  /** Sends the next call, if the worker is free; starts one if there is none. */
  #next(): void {
    if (this.#running !== undefined || this.#opening !== undefined) return;
    const [first] = this.#queue;
    if (first === undefined) {
      this.#port?.hold(false);
      return;
    }
    if (first.generation !== undefined && first.generation !== this.generation) {
      this.#queue.shift()?.reject(gone(first.call.target === 0 ? "an argument" : "this object"));
      this.#next();
    } else if (this.#port === undefined) {
      this.#reopen();
    } else {
      this.#send(this.#port, first);
    }
  }

  #send(port: WorkerPort, waiting: Waiting): void {
    this.#queue.shift();
    try {
      port.send({ kind: "call", call: waiting.call }, waiting.transfer);
    } catch (cause) {
      const message = `heed: the arguments cannot be sent to a worker: ${String(cause)}`;
      waiting.reject(new HeedError("option", message, { cause }));
      this.#next();
      return;
    }
    this.#running = waiting;
    port.hold(true);
  }

  /** A new worker for those who wait; if none can be had, they hear why. */
  #reopen(): void {
    this.open().then(
      () => this.#next(),
      (error: HeedError) => {
        for (const { reject } of this.#queue.splice(0)) reject(error);
      },
    );
  }

  /** Ends the worker, and with it whatever lives there. */
  #end(): void {
    this.#port?.terminate();
    this.#port = undefined;
    this.generation++;
  }

  #abort(waiting: Waiting, reason: unknown): void {
    const cause = reason === undefined ? undefined : { cause: reason };
    const error = new HeedError("aborted", "heed: the signal of this call was aborted", cause);
    if (this.#running === waiting) {
      this.#running = undefined;
      this.#end();
    } else {
      this.#queue.splice(this.#queue.indexOf(waiting), 1);
    }
    waiting.reject(error);
    this.#next();
  }

  /** Events of one worker; what an ended one still says is not heard. */
  #eventsOf(generation: number): WorkerEvents {
    return {
      message: (message) => {
        if (generation === this.generation) this.#hear(message);
      },
      failure: (cause) => {
        if (generation === this.generation) this.#fail(cause);
      },
    };
  }

  #hear(message: FromWorker): void {
    if (message.kind === "progress") this.#report?.(message.progress);
    else if (message.kind === "loaded") {
      const opening = this.#opening;
      this.#opening = undefined;
      opening?.resolve(message.loaded);
      this.#next();
    } else if (this.#opening !== undefined) {
      const error = message.kind === "error" ? message.error : undefined;
      this.#failOpening(undefined, new HeedError(error?.code ?? "crashed", error?.message ?? ""));
    } else this.#settle(message);
  }

  #settle(message: FromWorker): void {
    const running = this.#running;
    this.#running = undefined;
    if (message.kind === "error") {
      const { code, message: text } = message.error;
      // A trapped instance is spent: the next call gets a new worker.
      if (code === "crashed") this.#end();
      running?.reject(new HeedError(code, text));
    } else if (message.kind === "result") running?.resolve(message.value);
    this.#next();
  }

  #failOpening(cause: unknown, known?: HeedError): void {
    const opening = this.#opening;
    this.#opening = undefined;
    this.#end();
    const message = `heed: the worker could not be started: ${describeCause(cause)}`;
    opening?.reject(known ?? new HeedError("wasm-load", message, { cause }));
  }

  #fail(cause: unknown): void {
    if (this.#opening !== undefined) {
      this.#failOpening(cause);
      return;
    }
    const running = this.#running;
    this.#running = undefined;
    this.#end();
    const message = `heed: the worker ended (${describeCause(cause)}); the next call gets a new one`;
    running?.reject(new HeedError("crashed", message, { cause }));
    this.#next();
  }
}

function describeCause(cause: unknown): string {
  const { message } = (cause ?? {}) as { message?: unknown };
  if (typeof message === "string" && message !== "") return message;
  return cause instanceof Error ? String(cause) : "its script could not be loaded";
}
