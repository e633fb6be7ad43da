// The model that is open, the text it reads, and what it makes of it.
import { t } from "../lib/messages.js";
import { ModelError, openModel } from "../model/model_client.js";
import type {
  Encoded,
  GeneratedToken,
  Head,
  ModelClient,
  OpenProgress,
  RunResult,
} from "../model/model_types.js";
import { allHeads, mean, sameHead } from "./attention.js";
import { facts, shippedFiles } from "./shipped.js";

/** Next tokens that are listed. */
export const LISTED = 10;

export interface Sampling {
  temperature: number;
  /** 0: from all tokens. */
  topK: number;
  seed: number;
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
const isAbort = (error: unknown) =>
  error instanceof ModelError && ["aborted", "disposed"].includes(error.code);

class Reader {
  client = $state.raw<ModelClient | null>(null);
  /** The site's own model, not a visitor's. */
  isShipped = $state(true);
  progress = $state.raw<OpenProgress | null>(null);
  problem = $state<string | null>(null);
  text = $state("");
  encoded = $state.raw<Encoded | null>(null);
  result = $state.raw<RunResult | null>(null);
  pruned = $state.raw<readonly Head[]>([]);
  /** Nats a token of the held-out passage without so many heads, and with all of them. */
  passage = $state.raw<{ loss: number; without: number } | null>(null);
  wholeLoss = $state<number | null>(null);
  /** What the passage loses without one head, in the order of all heads. */
  costs = $state.raw<readonly number[]>([]);
  measuring = $state(false);
  written = $state.raw<readonly GeneratedToken[]>([]);
  writing = $state(false);
  private reading = new AbortController();
  private passing = new AbortController();
  private weighing = new AbortController();
  private generating = new AbortController();
  private passageIds = $state.raw<readonly number[]>([]);
  /** Models that were asked for: an earlier one that arrives later is not shown. */
  private openings = 0;

  readonly heads = $derived(
    this.client ? allHeads(this.client.facts.numLayers, this.client.facts.numHeads) : [],
  );

  /** The passage is text: a model without a tokenizer cannot read it. */
  readonly hasPassage = $derived(this.passageIds.length > 1);

  async openShipped(): Promise<void> {
    const opening = ++this.openings;
    const isLatest = () => opening === this.openings;
    const onProgress = (progress: OpenProgress) => {
      if (isLatest()) this.progress = progress;
    };
    try {
      const files = await shippedFiles();
      if (!isLatest()) return;
      const client = await openModel(files, { onProgress });
      // A visitor's model was opened meanwhile.
      if (!isLatest()) return client.dispose();
      await this.show(client, true);
    } catch (error) {
      if (isLatest()) this.problem = messageOf(error);
    }
  }

  /** Takes the place of the model that is open. */
  async show(client: ModelClient, isShipped = false): Promise<void> {
    this.close();
    this.client = client;
    this.isShipped = isShipped;
    this.pruned = [];
    this.costs = [];
    this.passage = null;
    this.wholeLoss = null;
    await Promise.all([this.read(this.text), this.openPassage(client)]);
  }

  close(): void {
    this.openings++;
    this.stop();
    this.stopMeasuring();
    this.reading.abort();
    this.passing.abort();
    this.client?.dispose();
    this.client = null;
    this.encoded = null;
    this.result = null;
  }

  /** Reads a text; an earlier one that is still being read is left. */
  async read(text: string): Promise<void> {
    this.text = text;
    this.forget();
    this.reading.abort();
    this.reading = new AbortController();
    const { signal } = this.reading;
    const { client } = this;
    if (!client) return;
    await this.guarded(signal, async () => {
      const encoded = await client.encode(text);
      const ids = encoded.ids.slice(0, this.contextLength);
      const result =
        ids.length === 0
          ? null
          : await client.run({ ids, pruned: this.pruned, heads: "all", topK: LISTED, signal });
      if (signal.aborted) return;
      this.encoded = encoded;
      this.result = result;
    });
  }

  /** Takes a head out of the model, or back in. */
  async toggle(head: Head): Promise<void> {
    const rest = this.pruned.filter((other) => !sameHead(head, other));
    this.pruned = rest.length < this.pruned.length ? rest : [...rest, head];
    await Promise.all([this.read(this.text), this.measurePassage()]);
  }

  async restoreHeads(): Promise<void> {
    this.pruned = [];
    await Promise.all([this.read(this.text), this.measurePassage()]);
  }

  /** What the passage loses without each single head. */
  async measureHeads(): Promise<void> {
    this.weighing.abort();
    this.weighing = new AbortController();
    const { signal } = this.weighing;
    this.measuring = true;
    this.costs = [];
    await this.guarded(signal, async () => {
      const whole = await this.lossWithout([], signal);
      for (const head of this.heads) {
        const loss = await this.lossWithout([head], signal);
        if (signal.aborted) return;
        this.costs = [...this.costs, loss - whole];
      }
    });
    if (!signal.aborted) this.measuring = false;
  }

  /** What has been measured of the heads stays. */
  stopMeasuring(): void {
    this.weighing.abort();
    this.measuring = false;
  }

  /** Goes on with the text, token by token. */
  async write({ temperature, topK, seed }: Sampling, most: number): Promise<void> {
    const { client, encoded } = this;
    if (!client || !encoded || encoded.ids.length === 0) return;
    this.stop();
    this.generating = new AbortController();
    const { signal } = this.generating;
    this.written = [];
    this.writing = true;
    const ids = encoded.ids.slice(0, this.contextLength);
    const maxTokens = Math.max(0, Math.min(most, this.contextLength - ids.length));
    const drawn = topK > 0 ? { topK } : {};
    await this.guarded(signal, async () => {
      const { pruned } = this;
      const tokens = client.generate({
        ids,
        maxTokens,
        temperature,
        seed,
        pruned,
        signal,
        ...drawn,
      });
      for await (const token of tokens) {
        if (signal.aborted) return;
        this.written = [...this.written, token];
      }
    });
    if (!signal.aborted) this.writing = false;
  }

  stop(): void {
    this.generating.abort();
    this.writing = false;
  }

  /** Forgets what was written. */
  forget(): void {
    this.stop();
    this.written = [];
  }

  private get contextLength(): number {
    return this.client?.facts.contextLength ?? facts.model.context;
  }

  private async lossWithout(pruned: readonly Head[], signal: AbortSignal): Promise<number> {
    const run = await this.client?.run({ ids: this.passageIds, pruned, topK: 0, signal });
    return run ? mean(run.losses) : Number.NaN;
  }

  private async openPassage(client: ModelClient): Promise<void> {
    await this.guarded(this.passing.signal, async () => {
      const { ids } = await client.encode(facts.passage.text);
      if (client !== this.client) return;
      this.passageIds = ids.slice(0, this.contextLength);
      await this.measurePassage();
    });
  }

  /** An earlier measurement that still waits is left. */
  private async measurePassage(): Promise<void> {
    this.passing.abort();
    this.passing = new AbortController();
    if (!this.hasPassage) return;
    const { signal } = this.passing;
    const { pruned } = this;
    await this.guarded(signal, async () => {
      const loss = await this.lossWithout(pruned, signal);
      if (signal.aborted) return;
      this.passage = { loss, without: pruned.length };
      if (pruned.length === 0) this.wholeLoss = loss;
    });
  }

  /** What fails is said, unless nobody waits for it any more; what succeeds takes an older problem away. */
  private async guarded(signal: AbortSignal, work: () => Promise<void>): Promise<void> {
    try {
      await work();
      if (!signal.aborted) this.problem = null;
    } catch (error) {
      if (signal.aborted || isAbort(error)) return;
      this.problem =
        error instanceof ModelError ? error.message : t`The model stopped: ${messageOf(error)}`;
    }
  }
}

export const reader = new Reader();
