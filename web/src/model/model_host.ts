// The worker's side: calls are computed one after the other, and may be cancelled meanwhile.
import type { NewToken } from "./engine.js";
import { t } from "./message.js";
import { ModelError, refuse } from "./model_error.js";
import type { GeneratedToken, GenerateRequest } from "./model_types.js";
import { type LoadHeed, type OpenedModel, openFiles } from "./opened_model.js";
import { checkIds, readGeneration, readRun } from "./requests.js";
import type { Answered, Asked, CallName, Calls } from "./wire.js";

/** So long the page is not heard while a call is computed; a layer may take longer. */
const HEAR_MS = 40;

type Tell = (answer: Answered, transfer?: Transferable[]) => void;
type Handlers = {
  [N in CallName]: (given: Calls[N]["given"], call: number) => Promise<Calls[N]["gives"]>;
};

interface Generation {
  tokens: AsyncGenerator<NewToken, void, void>;
  /** Keeps the bytes of a character that is not complete. */
  decoder: TextDecoder;
}

function faultOf(error: unknown): { code: ModelError["code"]; said: ModelError["said"] } {
  if (error instanceof ModelError) return { code: error.code, said: error.said };
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (error instanceof RangeError || code === "memory")
    return { code: "memory", said: t`This browser has no room for that: ${String(message)}` };
  return { code: "crashed", said: t`The model ended: ${String(message ?? error)}` };
}

/** Numbers of a result that leave the worker instead of being copied. */
function transferOf(value: unknown): Transferable[] {
  if (value === null || typeof value !== "object") return [];
  if (ArrayBuffer.isView(value)) return [value.buffer as ArrayBuffer];
  if (Array.isArray(value) && typeof value[0] !== "object") return [];
  return Object.values(value).flatMap(transferOf);
}

export class ModelHost {
  private model: OpenedModel | null = null;
  private readonly generations = new Map<number, Generation>();
  private readonly cancelled = new Set<number>();
  private readonly waiting = new Set<number>();
  private turn: Promise<void> = Promise.resolve();
  private running = 0;
  private heard = 0;

  constructor(
    private readonly tell: Tell,
    private readonly load: LoadHeed,
  ) {}

  hear(asked: Asked): void {
    if ("cancel" in asked) {
      if (this.waiting.has(asked.cancel)) this.cancelled.add(asked.cancel);
      return;
    }
    const { call } = asked;
    this.waiting.add(call);
    this.turn = this.turn
      .then(() => this.answer(asked))
      .finally(() => {
        this.waiting.delete(call);
        this.cancelled.delete(call);
      });
  }

  private async answer(asked: Exclude<Asked, { cancel: number }>): Promise<void> {
    const { call, name, given } = asked;
    this.running = call;
    this.heard = performance.now();
    try {
      this.refuseCancelled();
      const handler = this.handlers[name] as (
        given: unknown,
        call: number,
      ) => Promise<Calls[CallName]["gives"]>;
      const value = await handler(given, call);
      this.tell({ call, value }, transferOf(value));
    } catch (error) {
      this.tell({ call, fault: faultOf(error) });
    }
  }

  private refuseCancelled(): void {
    if (this.cancelled.has(this.running)) refuse("aborted", t`The call was aborted.`);
  }

  private readonly pause = async (): Promise<void> => {
    if (performance.now() - this.heard > HEAR_MS) {
      await new Promise((resolve) => setTimeout(resolve, 0));
      this.heard = performance.now();
    }
    this.refuseCancelled();
  };

  private get opened(): OpenedModel {
    return this.model ?? refuse("bad-request", t`No model is open.`);
  }

  private checked(ids: readonly number[]): readonly number[] {
    return checkIds(ids, this.opened.sizes.vocabSize);
  }

  private readonly handlers: Handlers = {
    open: async (files, call) => {
      this.model = await openFiles(files, this.load, (progress) => this.tell({ call, progress }));
      return this.model.facts;
    },
    encode: async (text) => this.opened.coder.encode(text),
    decode: async (ids) => this.opened.coder.decode(this.checked(ids)),
    pieces: async (ids) => this.opened.coder.pieces(this.checked(ids)),
    run: async (request) => {
      const { engine, sizes } = this.opened;
      return engine.run(readRun(request, sizes), this.pause);
    },
    start: async (request, call) => {
      this.generations.set(call, this.startGeneration(request));
      return call;
    },
    next: async (number) => this.nextToken(number),
    end: async (number) => {
      await this.generations.get(number)?.tokens.return();
      this.generations.delete(number);
      return null;
    },
  };

  private startGeneration(request: Omit<GenerateRequest, "signal">): Generation {
    const { engine, sizes } = this.opened;
    const tokens = engine.generate(readGeneration(request, sizes), this.pause);
    return { tokens, decoder: new TextDecoder("utf-8", { ignoreBOM: true }) };
  }

  private async nextToken(number: number): Promise<GeneratedToken | null> {
    const generation = this.generations.get(number);
    const token = generation && (await generation.tokens.next()).value;
    if (!generation || !token) return null;
    const bytes = this.opened.coder.textBytes(token.id);
    return { ...token, text: generation.decoder.decode(bytes, { stream: true }) };
  }
}
