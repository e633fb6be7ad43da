// The page's side of an opened model.
import { decimal, t as say } from "../lib/messages.js";
import { type Message, spell, t } from "./message.js";
import { ModelError } from "./model_error.js";
import type {
  GeneratedToken,
  GenerateRequest,
  ModelClient,
  ModelErrorCode,
  ModelFacts,
  ModelFiles,
  OpenOptions,
  OpenProgress,
  RunRequest,
} from "./model_types.js";
import type { Answered, Asked, CallName, Calls } from "./wire.js";

export { ModelError } from "./model_error.js";

/** What a client needs of a worker. */
export interface ModelPort {
  postMessage(asked: Asked): void;
  onmessage: ((event: MessageEvent<Answered>) => void) | null;
  onerror: ((event: ErrorEvent) => void) | null;
  terminate(): void;
}

/** A header or a tokenizer that takes longer to read is given up. */
const READING_MS = 30_000;

interface Pending {
  name: CallName;
  resolve: (value: never) => void;
  reject: (error: ModelError) => void;
}

/** The error in the page's language. */
function errorOf(code: ModelErrorCode, said: Message): ModelError {
  const numbered = (value: string | number) =>
    typeof value === "number" ? decimal(String(value)) : value;
  const message = spell(said, (words, values) =>
    say(words as unknown as TemplateStringsArray, ...values.map(numbered)),
  );
  return new ModelError(code, said, message);
}

const aborted = () => errorOf("aborted", t`The call was aborted.`);

/** Calls of one worker. */
class Line {
  private readonly pending = new Map<number, Pending>();
  private calls = 0;
  private ended: ModelError | null = null;

  constructor(
    private readonly port: ModelPort,
    private readonly onProgress: (progress: OpenProgress) => void,
  ) {
    port.onmessage = ({ data }) => this.hear(data);
    port.onerror = (event) => {
      this.end(errorOf("crashed", t`The model ended: ${event.message || "worker"}`));
    };
  }

  ask<N extends CallName>(
    name: N,
    given: Calls[N]["given"],
    signal?: AbortSignal,
  ): Promise<Calls[N]["gives"]> {
    if (this.ended) return Promise.reject(this.ended);
    if (signal?.aborted) return Promise.reject(aborted());
    const call = ++this.calls;
    const cancel = () => this.port.postMessage({ cancel: call });
    signal?.addEventListener("abort", cancel);
    return new Promise<Calls[N]["gives"]>((resolve, reject) => {
      this.pending.set(call, { name, resolve, reject });
      this.port.postMessage({ call, name, given } as Asked);
    }).finally(() => signal?.removeEventListener("abort", cancel));
  }

  /** Ends the worker; calls that wait reject with `reason`, and so do all that come. */
  end(reason: ModelError): void {
    if (this.ended) return;
    this.ended = reason;
    this.port.terminate();
    for (const { reject } of this.pending.values()) reject(reason);
    this.pending.clear();
  }

  private hear(answer: Answered): void {
    const pending = this.pending.get(answer.call);
    if (pending === undefined) return;
    if ("progress" in answer) {
      this.onProgress(answer.progress);
      return;
    }
    this.pending.delete(answer.call);
    if ("fault" in answer) pending.reject(errorOf(answer.fault.code, answer.fault.said));
    else pending.resolve(answer.value as never);
  }
}

class Client implements ModelClient {
  constructor(
    readonly facts: ModelFacts,
    private readonly line: Line,
  ) {}

  encode(text: string) {
    return this.line.ask("encode", text);
  }

  decode(ids: readonly number[]) {
    return this.line.ask("decode", ids);
  }

  pieces(ids: readonly number[]) {
    return this.line.ask("pieces", ids);
  }

  run({ signal, ...request }: RunRequest) {
    return this.line.ask("run", request, signal);
  }

  async *generate({
    signal,
    ...request
  }: GenerateRequest): AsyncGenerator<GeneratedToken, void, void> {
    const generation = await this.line.ask("start", request, signal);
    try {
      for (;;) {
        const token = await this.line.ask("next", generation, signal);
        if (token === null) return;
        yield token;
      }
    } finally {
      // A worker that has ended has freed everything.
      this.line.ask("end", generation).catch(() => {});
    }
  }

  dispose(): void {
    this.line.end(errorOf("disposed", t`The model was closed.`));
  }
}

const startWorker = (): ModelPort =>
  new Worker(new URL("./model_worker.ts", import.meta.url), { type: "module" });

/**
 * Opens the files in a worker; nothing is uploaded. Rejects with ModelError, whose message is in the page's
 * language; the worker has ended then. `start` makes the worker.
 */
export async function openModel(
  files: ModelFiles,
  { onProgress = () => {}, signal }: OpenOptions = {},
  start: () => ModelPort = startWorker,
): Promise<ModelClient> {
  if (signal?.aborted) throw aborted();
  let limit: ReturnType<typeof setTimeout> | undefined;
  const line = new Line(start(), (progress) => {
    clearTimeout(limit);
    if (progress.stage === "header" || progress.stage === "tokenizer") watch();
    onProgress(progress);
  });
  const watch = () => {
    const seconds = READING_MS / 1000;
    limit = setTimeout(() => {
      line.end(errorOf("timeout", t`Reading the files took longer than ${seconds} seconds.`));
    }, READING_MS);
  };
  const abort = () => line.end(aborted());
  signal?.addEventListener("abort", abort);
  try {
    return new Client(await line.ask("open", files), line);
  } catch (error) {
    line.end(error as ModelError);
    throw error;
  } finally {
    clearTimeout(limit);
    signal?.removeEventListener("abort", abort);
  }
}
