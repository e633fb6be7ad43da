import { fail, HeedError } from "./errors.js";
import { inWordsOfJavaScript, type Spelling } from "./execute.js";
import { type Heap, Scope } from "./heap.js";
import { asRecord, checkNames } from "./option_names.js";
import { checkAttached } from "./source.js";
import { type PlainTensor, plainTensor, type WithDispose } from "./tensor.js";
import type { TrainingGlue } from "./training_glue.js";
import {
  type OptimizerOptions,
  readOptimizerOptions,
  type StepResult,
  type TransformerSizes,
  toSizes,
} from "./training_options.js";

/** Token ids or targets: whole numbers. */
export type Ids = ArrayLike<number>;

/** Sequences of equal length, one after the other. */
export interface TokenBatch {
  /** `batch` times `len` ids. */
  readonly tokens: Ids;
  /** How many sequences. Default 1. */
  readonly batch?: number | undefined;
  /** For models with an encoder: `batch` sequences of a length of their own. */
  readonly source?: Ids | undefined;
}

export interface TrainBatch extends TokenBatch {
  /** The right token of each place; negative ones are ignored. */
  readonly targets: Ids;
}

export interface HeadsOptions {
  /** From 0. */
  readonly layer: number;
  /** "self" (default), "cross": to the encoder, "encoder": inside of it. */
  readonly of?: "self" | "cross" | "encoder" | undefined;
}

export interface SaveOptions {
  /** How numbers are stored. Default "float32"; "float16" holds weights up to 65504. */
  readonly dtype?: "float32" | "float16" | "bfloat16" | undefined;
}

/** A transformer over tokens with its weights in the memory of the instance. */
export interface TransformerModelMembers {
  /** The options with their defaults. */
  readonly sizes: TransformerSizes;
  readonly disposed: boolean;
  /** Starts training anew with these options: steps, rate and moments begin at 0, weights stay. */
  setOptimizer(options?: OptimizerOptions): void;
  /**
   * Forward, cross-entropy, backward and AdamW. A loss or a gradient that is not finite ends training:
   * the result says `diverged`, nothing is updated, and further steps throw ("unsupported") until
   * setOptimizer(). Nor is anything updated where all targets are ignored: the result has `counted` 0.
   * Throws HeedError, and updates nothing then.
   */
  trainStep(batch: TrainBatch): StepResult;
  /**
   * Logits of every place, [batch, len, vocabulary]. `dropout` among the params of the model is for
   * training: nothing is dropped here. Throws HeedError.
   */
  predict(batch: TokenBatch): PlainTensor<"float32">;
  /**
   * What each query takes of each key's value in the last predict() or trainStep(),
   * [batch, num_heads, q_len, kv_len]; recurrent mechanisms have such a picture too. Throws HeedError.
   */
  heads(options: HeadsOptions): PlainTensor<"float32">;
  /**
   * The model as a safetensors file, its options among the metadata. Throws HeedError ("range") for
   * weights that the dtype cannot hold.
   */
  save(options?: SaveOptions): Uint8Array;
  /** Frees the weights. May be called again. */
  dispose(): void;
}

export type TransformerModel = TransformerModelMembers & WithDispose;

const BATCH_NAMES: ReadonlySet<string> = new Set(["tokens", "batch", "source"]);
const TRAIN_NAMES: ReadonlySet<string> = new Set([...BATCH_NAMES, "targets"]);
const HEADS = ["self", "cross", "encoder"] as const;
/** Codes of heed::DType. */
const SAVED = { float32: 0, float16: 4, bfloat16: 5 } as const;

/** Of calls that are refused before the model goes forward: what it holds is that of the last one. */
const REFUSALS: ReadonlySet<string> = new Set(["shape", "range", "option", "unsupported"]);

/** Of a call: more would not fit a 32-bit memory with what is made of them. */
const MOST_IDS = 2 ** 28;

/** The ids as 32-bit integers; numbers that are none are refused here, ids out of range by C++. */
function readIds(name: string, given: unknown): Int32Array {
  if (ArrayBuffer.isView(given)) checkAttached(name, given);
  if (given instanceof Int32Array) return given;
  const list = given as Ids | null | undefined;
  if (typeof list !== "object" || list === null || typeof list.length !== "number") {
    fail("option", name, given, "an array of ids");
  }
  if (!(list.length <= MOST_IDS)) {
    fail("range", `${name}.length`, list.length, `at most ${MOST_IDS}`);
  }
  return Int32Array.from({ length: list.length }, (_, i) => {
    const id = list[i] as number;
    if (typeof id !== "number" || (id | 0) !== id)
      fail("range", `${name}[${i}]`, id, "a whole number of 32 bits");
    return id;
  });
}

interface Batch {
  batch: number;
  tokens: Int32Array;
  source: Int32Array;
}

function lengthOf(name: string, ids: Int32Array, batch: number): number {
  const len = ids.length / batch;
  if (Number.isInteger(len) && len > 0) return len;
  throw new HeedError(
    "shape",
    `${name}: got ${ids.length} ids, expected as many for each of ${batch} sequences`,
  );
}

function readBatch(given: unknown, names: ReadonlySet<string>): Batch {
  const fields = asRecord("batch", given);
  checkNames("batch", fields, names);
  const { batch = 1 } = fields;
  if (typeof batch !== "number" || !Number.isSafeInteger(batch) || batch < 1) {
    fail("range", "batch", batch, "a whole number of sequences from 1");
  }
  const tokens = readIds("tokens", fields.tokens);
  lengthOf("tokens", tokens, batch);
  const source = fields.source === undefined ? new Int32Array(0) : readIds("source", fields.source);
  return { batch, tokens, source };
}

class Model implements TransformerModelMembers {
  readonly sizes: TransformerSizes;
  readonly #heap: Heap<TrainingGlue>;
  readonly #id: number;
  readonly #spelling: Spelling;
  /** Extents of the last forward pass. */
  #last: { batch: number; len: number; sourceLen: number } | undefined;
  #trains = false;
  #disposed = false;

  constructor(heap: Heap<TrainingGlue>, id: number, spelling: Spelling) {
    this.#heap = heap;
    this.#id = id;
    this.#spelling = spelling;
    this.sizes = toSizes(heap.callChecked((glue) => glue.modelDescribe(id)));
  }

  get disposed(): boolean {
    return this.#disposed || this.#heap.closed;
  }

  setOptimizer(options?: unknown): void {
    this.#checkUsable();
    const row = readOptimizerOptions(options);
    this.#checked((glue) => glue.trainerNew(this.#id, row));
    this.#trains = true;
  }

  trainStep(given: unknown): StepResult {
    this.#checkUsable();
    const batch = readBatch(given, TRAIN_NAMES);
    const targets = readIds("targets", asRecord("batch", given).targets);
    if (!this.#trains) this.setOptimizer();
    return this.#withBatch(batch, [targets], (numbers) =>
      this.#checked((glue) => glue.trainStep(this.#id, numbers)),
    );
  }

  predict(given: unknown): PlainTensor<"float32"> {
    this.#checkUsable();
    const batch = readBatch(given, BATCH_NAMES);
    const shape = [batch.batch, batch.tokens.length / batch.batch, this.sizes.vocabulary];
    return this.#withBatch(batch, [], (numbers, scope) =>
      this.#read(scope, "logits", shape, (pointer) =>
        this.#checked((glue) => glue.modelForward(this.#id, numbers, pointer)),
      ),
    );
  }

  heads(given: unknown): PlainTensor<"float32"> {
    this.#checkUsable();
    const fields = asRecord("options", given);
    checkNames("options", fields, new Set(["layer", "of"]));
    const { layer, of = "self" } = fields;
    if (typeof layer !== "number" || !Number.isSafeInteger(layer)) {
      fail("option", "layer", layer, "the number of a layer");
    }
    const heads = HEADS.indexOf(of as (typeof HEADS)[number]);
    if (heads < 0) fail("option", "of", of, '"self", "cross" or "encoder"');
    if (this.#last === undefined) {
      throw new HeedError("option", "heads: there was no predict() or trainStep() yet");
    }
    const { batch, len, sourceLen } = this.#last;
    const lens = [
      [len, len],
      [len, sourceLen],
      [sourceLen, sourceLen],
    ][heads] as [number, number];
    const shape = [batch, this.sizes.numHeads, ...lens];
    const scope = new Scope(this.#heap);
    try {
      return this.#read(scope, "heads", shape, (pointer) =>
        this.#checked((glue) => glue.modelWeights(this.#id, [heads, layer, pointer, ...shape])),
      );
    } finally {
      scope.free();
    }
  }

  save(given?: unknown): Uint8Array {
    this.#checkUsable();
    const fields = asRecord("options", given);
    checkNames("options", fields, new Set(["dtype"]));
    const { dtype = "float32" } = fields;
    if (typeof dtype !== "string" || !Object.hasOwn(SAVED, dtype)) {
      fail("dtype", "dtype", dtype, '"float32", "float16" or "bfloat16"');
    }
    const code = SAVED[dtype as keyof typeof SAVED];
    return this.#checked((glue) => glue.modelSave(this.#id, code)) as Uint8Array;
  }

  dispose(): void {
    if (this.disposed) return;
    this.#disposed = true;
    this.#heap.release((glue) => glue.modelFree(this.#id));
  }

  #checkUsable(): void {
    if (this.#disposed) throw new HeedError("disposed", "model: it was disposed of");
    this.#heap.checkUsable();
  }

  #checked<T>(work: (glue: TrainingGlue) => T) {
    return inWordsOfJavaScript(this.#spelling, () => this.#heap.callChecked(work));
  }

  /** Learned positions end. */
  #checkLen({ batch, tokens, source }: Batch): void {
    const { position, maxLen } = this.sizes;
    if (position !== "learned") return;
    for (const [name, ids] of Object.entries({ tokens, source })) {
      if (ids.length <= batch * maxLen) continue;
      const got = `got ${ids.length / batch} ids for each sequence`;
      throw new HeedError("range", `${name}: ${got}, expected at most maxLen = ${maxLen}`);
    }
  }

  /** Lends copies of the ids to `work`, as pointers and counts. */
  #withBatch<T>(
    { batch, tokens, source }: Batch,
    more: readonly Int32Array[],
    work: (numbers: number[], scope: Scope) => T,
  ): T {
    this.#checkLen({ batch, tokens, source });
    const scope = new Scope(this.#heap);
    const numbers = [batch];
    try {
      for (const ids of [tokens, source, ...more]) {
        const pointer = scope.allocate("ids", 4 * ids.length);
        this.#heap.view("int32", pointer, ids.length).set(ids);
        numbers.push(pointer, ids.length);
      }
      const last = this.#last;
      this.#last = undefined;
      try {
        const result = work(numbers, scope);
        const sourceLen = source.length / batch;
        this.#last = { batch, len: tokens.length / batch, sourceLen };
        return result;
      } catch (error) {
        if (error instanceof HeedError && REFUSALS.has(error.code)) this.#last = last;
        throw error;
      }
    } finally {
      scope.free();
    }
  }

  /** A copy of what `write` puts into new memory. */
  #read(
    scope: Scope,
    name: string,
    shape: number[],
    write: (pointer: number) => void,
  ): PlainTensor<"float32"> {
    const count = shape.reduce((a, b) => a * b);
    const pointer = scope.allocate(name, 4 * count);
    write(pointer);
    const data = new Float32Array(this.#heap.view("float32", pointer, count));
    return plainTensor(data, shape, "float32");
  }
}

// Makes `using` work, where the engine knows the symbol: typed by `WithDispose`.
const dispose = (Symbol as { dispose?: symbol }).dispose;
if (dispose !== undefined) {
  Object.defineProperty(Model.prototype, dispose, { value: Model.prototype.dispose });
}

/** The model that C++ knows by this number. */
export const modelOf = (
  heap: Heap<TrainingGlue>,
  id: number,
  spelling: Spelling,
): TransformerModel => new Model(heap, id, spelling) as TransformerModelMembers as TransformerModel;

/** Refusals of this module name nothing in C++'s spelling that callers spell otherwise than so. */
export const spellingOf = (nameOf: (name: string) => string): Spelling => ({
  words: { has: () => true },
  nameOf,
});
