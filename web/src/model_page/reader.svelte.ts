// The model that is open, the text it reads, and what it makes of it.
import { t } from "../lib/messages.js";
import { loadProblem } from "../lib/site.js";
import { ModelError, openModel } from "../model/model_client.js";
import type {
  Encoded,
  GeneratedToken,
  Head,
  ModelClient,
  OpenProgress,
  Piece,
  RunResult,
} from "../model/model_types.js";
import { allHeads, mean, sameHead } from "./attention.js";
import type { Sampling } from "./choices.js";
import { lastOf, leadOf, mostRead, promptOf, shownLayers } from "./extent.js";
import { facts, shippedFiles } from "./shipped.js";

/** Next tokens that are listed. */
export const LISTED = 10;

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
  /** What is read of the text: the last tokens where it has too many. */
  tokens = $state.raw<readonly Piece[]>([]);
  /** What `result` holds is not of the newest text yet. */
  isReading = $state(false);
  /** Its heads are shown, whatever their size. */
  private layer = 0;
  result = $state.raw<RunResult | null>(null);
  pruned = $state.raw<readonly Head[]>([]);
  /** Nats a token of the held-out passage without so many heads, and with all of them. */
  passage = $state.raw<{ loss: number; without: number; whole: number } | null>(null);
  /** What the passage loses without one head, in the order of all heads. */
  costs = $state.raw<readonly number[]>([]);
  measuring = $state(false);
  written = $state.raw<readonly GeneratedToken[]>([]);
  /** Of so many tokens the model went on. */
  continued = $state(0);
  writing = $state(false);
  private reading = new AbortController();
  private passing = new AbortController();
  private weighing = new AbortController();
  private generating = new AbortController();
  private passageIds = $state.raw<readonly number[]>([]);
  /** Models that were asked for: an earlier one that arrives later is not shown. */
  private openings = 0;
  /** The site's model is on its way. */
  private isOpening = false;
  /** What is taken out of it once it is there. */
  private awaited = $state.raw<readonly Head[] | null>(null);

  readonly heads = $derived(
    this.client ? allHeads(this.client.facts.numLayers, this.client.facts.numHeads) : [],
  );

  /** The heads that are out, or that will be when the site's model is there. */
  readonly out = $derived(this.awaited ?? this.pruned);

  /** The passage is text: a model without a tokenizer cannot read it. */
  readonly hasPassage = $derived(this.passageIds.length > 1);

  /** `out` are heads that are taken out of it. */
  async openShipped(out: readonly Head[] = []): Promise<void> {
    const opening = ++this.openings;
    const isLatest = () => opening === this.openings;
    this.isOpening = true;
    this.awaited = out;
    this.problem = null;
    const onProgress = (progress: OpenProgress) => {
      if (isLatest()) this.progress = progress;
    };
    try {
      const files = await shippedFiles();
      if (!isLatest()) return;
      const client = await openModel(files, { onProgress });
      // A visitor's model was opened meanwhile.
      if (!isLatest()) return client.dispose();
      await this.show(client, this.awaited ?? out, true);
    } catch (error) {
      if (!isLatest()) return;
      this.isOpening = false;
      this.progress = null;
      this.problem = loadProblem(error);
    }
  }

  /** What a link asks for: these heads out, and the layer of `head` where not all are there. */
  async follow(out: readonly Head[], head: Head): Promise<void> {
    const { client, isOpening } = this;
    if (isOpening) this.awaited = out;
    if (!client) return isOpening ? undefined : this.openShipped(out);
    this.layer = this.known([head])[0]?.layer ?? 0;
    await (isOpening ? this.read(this.text) : this.prune(out));
  }

  /** Takes the place of the model that is open. */
  async show(client: ModelClient, out: readonly Head[] = [], isShipped = false): Promise<void> {
    this.close();
    this.client = client;
    this.awaited = null;
    this.isShipped = isShipped;
    this.pruned = this.known(out);
    this.costs = [];
    this.passage = null;
    this.passageIds = [];
    await Promise.all([this.read(this.text), this.openPassage(client)]);
  }

  close(): void {
    this.openings++;
    this.isOpening = false;
    this.stop();
    this.stopMeasuring();
    this.reading.abort();
    this.passing.abort();
    this.client?.dispose();
    this.client = null;
    this.encoded = null;
    this.tokens = [];
    this.result = null;
    this.isReading = false;
    this.layer = 0;
  }

  /** Reads a text; an earlier one that is still being read is left. */
  async read(text: string): Promise<void> {
    this.text = text;
    this.forget();
    await this.reread();
  }

  /** Sees to it that the heads of a layer are there. */
  async showLayer(layer: number): Promise<void> {
    this.layer = layer;
    const { result } = this;
    if (result && !result.heads.some((shown) => shown.layer === layer)) await this.reread();
  }

  /** Takes a head out of the model, or back in. */
  async toggle(head: Head): Promise<void> {
    const rest = this.pruned.filter((other) => !sameHead(head, other));
    await this.prune(rest.length < this.pruned.length ? rest : [...rest, head]);
  }

  /** Takes these heads out, and all others back in. */
  async prune(heads: readonly Head[]): Promise<void> {
    this.pruned = this.known(heads);
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

  /** Goes on with the text, token by token: from its last tokens, where all leave no room. */
  async write({ temperature, topK, seed }: Sampling, most: number): Promise<void> {
    const { client, tokens } = this;
    if (!client || this.isReading || tokens.length === 0) return;
    this.stop();
    this.generating = new AbortController();
    const { signal } = this.generating;
    const { kept, maxTokens } = promptOf(client.facts, tokens.length, most);
    this.written = [];
    this.continued = kept;
    this.writing = true;
    const ids = lastOf(tokens, kept, leadOf(tokens)).map(({ id }) => id);
    const drawn = topK > 0 ? { topK: Math.min(topK, client.facts.vocabSize) } : {};
    const { pruned } = this;
    const request = { ids, maxTokens, temperature, seed, pruned, signal, ...drawn };
    await this.guarded(signal, async () => {
      for await (const token of client.generate(request)) {
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

  /** Those of them that the model has, each once. */
  private known(heads: readonly Head[]): readonly Head[] {
    return this.heads.filter((head) => heads.some((other) => sameHead(head, other)));
  }

  private async reread(): Promise<void> {
    this.reading.abort();
    this.reading = new AbortController();
    const { signal } = this.reading;
    const { client, text } = this;
    if (!client) return;
    this.isReading = true;
    await this.guarded(signal, async () => {
      try {
        const read = await this.readBy(client, text, signal);
        if (!signal.aborted) [this.encoded, this.tokens, this.result] = read;
      } catch (error) {
        if (!signal.aborted) [this.encoded, this.tokens, this.result] = [null, [], null];
        throw error;
      }
    });
    if (!signal.aborted) this.isReading = false;
  }

  private async readBy(
    client: ModelClient,
    text: string,
    signal: AbortSignal,
  ): Promise<[Encoded, readonly Piece[], RunResult | null]> {
    const encoded = await client.encode(text);
    const tokens = lastOf(encoded.pieces, mostRead(client.facts), leadOf(encoded.pieces));
    if (tokens.length === 0) return [encoded, tokens, null];
    const ids = tokens.map(({ id }) => id);
    const heads = shownLayers(client.facts, ids.length, this.layer);
    const { pruned } = this;
    const result = await client.run({ ids, pruned, heads, topK: LISTED, signal });
    return [encoded, tokens, result];
  }

  private async lossWithout(pruned: readonly Head[], signal: AbortSignal): Promise<number> {
    const run = await this.client?.run({ ids: this.passageIds, pruned, topK: 0, signal });
    return run ? mean(run.losses) : Number.NaN;
  }

  private async openPassage(client: ModelClient): Promise<void> {
    if (!client.facts.hasTokenizer) return;
    await this.guarded(this.passing.signal, async () => {
      const { ids } = await client.encode(facts.passage.text);
      if (client !== this.client) return;
      this.passageIds = ids.slice(0, Math.min(mostRead(client.facts), facts.model.context));
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
      // A link may have opened the page with heads taken out.
      const known = this.passage?.whole;
      const loss = await this.lossWithout(pruned, signal);
      const whole = pruned.length === 0 ? loss : (known ?? (await this.lossWithout([], signal)));
      if (!signal.aborted) this.passage = { loss, without: pruned.length, whole };
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
