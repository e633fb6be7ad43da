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
  private generating = new AbortController();
  private passageIds: readonly number[] = [];
  /** Models that were asked for: an earlier one that arrives later is not shown. */
  private openings = 0;

  readonly heads = $derived(
    this.client ? allHeads(this.client.facts.numLayers, this.client.facts.numHeads) : [],
  );

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
    await this.guarded(async () => {
      const { ids } = await client.encode(facts.passage.text);
      if (client !== this.client) return;
      this.passageIds = ids.slice(0, this.contextLength);
      await Promise.all([this.read(this.text), this.measurePassage()]);
    });
  }

  close(): void {
    this.openings++;
    this.stop();
    this.reading.abort();
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
    await this.guarded(async () => {
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
    await Promise.all([this.read(this.text), this.guarded(() => this.measurePassage())]);
  }

  async restoreHeads(): Promise<void> {
    this.pruned = [];
    await Promise.all([this.read(this.text), this.guarded(() => this.measurePassage())]);
  }

  /** What the passage loses without each single head. */
  async measureHeads(): Promise<void> {
    const { client } = this;
    this.measuring = true;
    this.costs = [];
    await this.guarded(async () => {
      const whole = await this.lossWithout([]);
      for (const head of this.heads) {
        const loss = await this.lossWithout([head]);
        if (this.client !== client) return;
        this.costs = [...this.costs, loss - whole];
      }
    });
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
    await this.guarded(async () => {
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

  private async lossWithout(pruned: readonly Head[]): Promise<number> {
    const run = await this.client?.run({ ids: this.passageIds, pruned, topK: 0 });
    return run ? mean(run.losses) : Number.NaN;
  }

  private async measurePassage(): Promise<void> {
    const { pruned, client } = this;
    const loss = await this.lossWithout(pruned);
    // Another head may have been taken out meanwhile.
    if (pruned !== this.pruned || client !== this.client) return;
    this.passage = { loss, without: pruned.length };
    if (pruned.length === 0) this.wholeLoss = loss;
  }

  private async guarded(work: () => Promise<void>): Promise<void> {
    try {
      this.problem = null;
      await work();
    } catch (error) {
      if (!isAbort(error)) this.problem = t`The model stopped: ${messageOf(error)}`;
    }
  }
}

export const reader = new Reader();
