import { fail, HeedError } from "./errors.js";
import { inWordsOfJavaScript } from "./execute.js";
import { type Heap, type MemoryReport, Scope } from "./heap.js";
import type { Choice, Variant } from "./heed.js";
import { publicName } from "./params.js";
import { bytesOf } from "./source.js";
import type { TrainingGlue } from "./training_glue.js";
import { modelOf, spellingOf, type TransformerModel } from "./training_model.js";
import { readModelOptions, readParams, type TransformerOptions } from "./training_options.js";

/** The kit: makes models in one WebAssembly instance. */
export class Training {
  /** Ids that `mechanism` of a model may be; hgrn2, which has no keys, with a `position` other than "rope". */
  readonly mechanisms: readonly string[];
  /** What `load()` chose, and why. */
  readonly variant: Variant;
  readonly threads: number;
  readonly simd: "plain" | "relaxed";
  readonly reasons: { readonly threads: string; readonly simd: string };
  readonly version: string;
  readonly #heap: Heap<TrainingGlue>;

  /** @internal */
  constructor(heap: Heap<TrainingGlue>, choice: Choice, version: string) {
    this.#heap = heap;
    this.variant = choice.variant;
    this.threads = choice.threads;
    this.simd = choice.simd;
    this.reasons = choice.reasons;
    this.version = version;
    this.mechanisms = Object.freeze(heap.call((glue) => glue.trainableMechanisms()));
  }

  get disposed(): boolean {
    return this.#heap.closed;
  }

  /** A new model; its weights follow from its options and their seed. Throws HeedError. */
  readonly transformer = (options: TransformerOptions): TransformerModel => {
    this.#heap.checkUsable();
    const row = readModelOptions(options);
    const { names, values, nameOf } = readParams(options);
    const spelling = spellingOf(nameOf);
    const id = inWordsOfJavaScript(spelling, () =>
      this.#heap.callChecked((glue) => glue.modelNew(row, names.join(" "), values)),
    );
    return modelOf(this.#heap, id, spelling);
  };

  /** A model that `save()` wrote; any other file is refused. Throws HeedError. */
  readonly loadTransformer = (file: ArrayBuffer | Uint8Array): TransformerModel => {
    this.#heap.checkUsable();
    const bytes = bytesOf("file", file);
    if (bytes === undefined) fail("option", "file", file, "a Uint8Array");
    const scope = new Scope(this.#heap);
    try {
      const pointer = scope.allocate("file", bytes.length);
      this.#heap.view("uint8", pointer, bytes.length).set(bytes);
      const id = this.#heap.callChecked((glue) => glue.modelLoad(pointer, bytes.length));
      return modelOf(this.#heap, id, spellingOf(publicName));
    } finally {
      scope.free();
    }
  };

  /** Bytes that models and calls hold now, and the size of the memory. */
  readonly memory = (): Pick<MemoryReport, "bytes" | "heapBytes"> => {
    if (this.disposed) return { bytes: 0, heapBytes: 0 };
    const { heapBytes } = this.#heap.report();
    return { bytes: this.#heap.call((glue) => glue.heapInUse()), heapBytes };
  };

  /** Ends the instance with its models and threads. May be called again. */
  readonly dispose = (): void => {
    if (this.disposed) return;
    this.#heap.close();
  };
}

/** Some engines accept SIMD modules and compute them wrong: the loss of a batch must fall. */
export function selfTestTraining(training: Training): void {
  const model = training.transformer({ vocabulary: 3, embedDim: 8, numHeads: 2, numLayers: 1 });
  try {
    const batch = { tokens: [0, 1, 2, 0], targets: [1, 2, 0, 1] };
    model.setOptimizer({ learningRate: 1e-2 });
    const first = model.trainStep(batch).loss;
    for (let step = 0; step < 10; step++) model.trainStep(batch);
    const last = model.trainStep(batch).loss;
    if (first < 4 && last < first / 2) return;
    throw new HeedError(
      "unsupported",
      `heed: the self-test of training gave losses ${first} and ${last}; this engine validates SIMD but computes it wrong`,
    );
  } finally {
    model.dispose();
  }
}
