// heed/training: models that learn in WebAssembly, the same bits for any number of threads.
import { readFileSync } from "node:fs";
import { load, type Training, type TransformerModel, type TransformerOptions } from "heed/training";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { load as loadOnWeb } from "../../dist/training.js";
import { expectError, expectRejection, random, root } from "./support.js";

const ONE = { threads: 1, simd: "plain" } as const;
const VOCABULARY = 10;
const HALF = 6;
const LEN = 2 * HALF - 1;

/** Random tokens twice: from the second half on the next token is what followed last time. */
function copyBatch(batch: number, next: () => number) {
  const tokens = new Int32Array(batch * LEN);
  const targets = new Int32Array(batch * LEN);
  for (let b = 0; b < batch; b++) {
    const half = Array.from({ length: HALF }, () => Math.floor(((next() + 1) / 2) * VOCABULARY));
    for (let i = 0; i < LEN; i++) {
      tokens[b * LEN + i] = half[i % HALF] as number;
      targets[b * LEN + i] = i + 1 < HALF ? -1 : (half[(i + 1) % HALF] as number);
    }
  }
  return { tokens, targets, batch };
}

function accuracy(model: TransformerModel): number {
  const { targets, ...batch } = copyBatch(64, random(99));
  const { data } = model.predict(batch);
  let [right, counted] = [0, 0];
  targets.forEach((target, i) => {
    if (target < 0) return;
    const row = data.subarray(i * VOCABULARY, (i + 1) * VOCABULARY);
    if (row.indexOf(Math.max(...row)) === target) right++;
    counted++;
  });
  return right / counted;
}

/** Faster than a comparison that could show where. */
const equal = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;

const OPTIONS = { vocabulary: VOCABULARY, embedDim: 32, seed: 1 } as const;

function train(training: Training, options: Partial<TransformerOptions>, steps: number) {
  const model = training.transformer({ ...OPTIONS, ...options });
  model.setOptimizer({
    learningRate: 5e-3,
    warmupSteps: Math.min(20, steps - 1),
    totalSteps: steps,
  });
  const next = random(7);
  let loss = 0;
  for (let step = 0; step < steps; step++) loss = model.trainStep(copyBatch(32, next)).loss;
  return { model, loss };
}

let training: Training;
beforeAll(async () => {
  training = await load(ONE);
});
afterAll(() => training.dispose());

describe("heed/training", () => {
  it("learns to copy", () => {
    const { model, loss } = train(training, {}, 400);
    expect(loss).toBeLessThan(0.2);
    expect(accuracy(model)).toBeGreaterThanOrEqual(0.97);
    model.dispose();
  });

  it("trains around a recurrent mechanism, which it pictures too", () => {
    const { model, loss } = train(training, { mechanism: "gated_delta_rule" }, 300);
    expect(loss).toBeLessThan(1);
    model.predict({ tokens: copyBatch(2, random(3)).tokens, batch: 2 });
    const { data, shape } = model.heads({ layer: 1 });
    expect(shape).toEqual([2, 4, LEN, LEN]);
    const above = data.filter((_, n) => n % LEN > Math.floor(n / LEN) % LEN);
    expect(above.every((x) => x === 0)).toBe(true);
    expect(data.some((x) => x !== 0)).toBe(true);
    model.dispose();
  });

  it("gives the same bits for any number of threads on plain SIMD", async () => {
    const files = [];
    for (const threads of [1, 2, 3]) {
      const kit = await load({ threads, simd: "plain" });
      expect(kit.threads).toBe(threads);
      const { model } = train(kit, { embedDim: 64 }, 4);
      files.push(model.save());
      kit.dispose();
    }
    const [one, two, three] = files as [Uint8Array, Uint8Array, Uint8Array];
    expect([equal(one, two), equal(one, three)]).toEqual([true, true]);
  });

  it("trains every mechanism that it lists", () => {
    expect(training.mechanisms).toContain("scaled_dot_product");
    expect(training.mechanisms).toContain("delta_rule");
    expect(training.mechanisms).not.toContain("reformer");
    const needs: Record<string, TransformerOptions["params"]> = {
      cosformer: { period: 64 },
      swin_window: { grid: [1, LEN], windowSize: [1, LEN] },
      neighborhood: { grid: [1, LEN], windowSize: [1, 3] },
      block_sparse: { pattern: "strided", stride: 3 },
      attention: {},
    };
    for (const mechanism of training.mechanisms) {
      const params = needs[mechanism] ?? {};
      const position = mechanism === "hgrn2" ? "learned" : "rope";
      // Rows of these hold all tokens.
      const causal = mechanism !== "efficient" && mechanism !== "nystrom";
      const model = training.transformer({ ...OPTIONS, mechanism, params, position, causal });
      const { loss } = model.trainStep(copyBatch(2, random(1)));
      expect(loss, mechanism).toBeGreaterThan(0);
      expect(model.heads({ layer: 0 }).data.every(Number.isFinite), mechanism).toBe(true);
      model.dispose();
    }
  });

  it("saves and loads itself", () => {
    const { model } = train(training, { position: "learned", maxLen: LEN, norm: "layer" }, 3);
    const again = training.loadTransformer(model.save());
    expect(again.sizes).toEqual(model.sizes);
    expect(again.sizes).toMatchObject({ position: "learned", norm: "layer", numKvHeads: 4 });
    const { tokens, batch } = copyBatch(2, random(3));
    expect(again.predict({ tokens, batch }).data).toEqual(model.predict({ tokens, batch }).data);
    const half = model.save({ dtype: "bfloat16" });
    expect(half.length).toBeLessThan(0.6 * model.save().length);
    expect(training.loadTransformer(half).sizes).toEqual(model.sizes);
  });

  it("attends to a source", () => {
    const model = training.transformer({ ...OPTIONS, encoderLayers: 1 });
    const tokens = [1, 2, 3, 4];
    const source = [5, 6, 7, 8, 9, 0];
    const batch = { tokens, source, batch: 2 };
    const { shape } = model.predict(batch);
    expect(shape).toEqual([2, 2, VOCABULARY]);
    expect(model.heads({ layer: 0, of: "cross" }).shape).toEqual([2, 4, 2, 3]);
    const { data, shape: square } = model.heads({ layer: 0, of: "encoder" });
    expect(square).toEqual([2, 4, 3, 3]);
    for (let n = 0; n < data.length; n += 3) {
      expect(data.subarray(n, n + 3).reduce((a, b) => a + b)).toBeCloseTo(1, 5);
    }
    const first = model.trainStep({ ...batch, targets: [1, 1, 2, 2] }).loss;
    for (let step = 0; step < 20; step++) model.trainStep({ ...batch, targets: [1, 1, 2, 2] });
    expect(model.trainStep({ ...batch, targets: [1, 1, 2, 2] }).loss).toBeLessThan(first);
    expectError("option", ["source"], () => model.predict({ tokens }));
    model.dispose();
  });

  it("stops where training diverges and keeps the weights", () => {
    const model = training.transformer(OPTIONS);
    model.setOptimizer({ learningRate: 1e30, maxGradientNorm: Infinity });
    const batch = copyBatch(4, random(1));
    let result = model.trainStep(batch);
    for (let step = 0; step < 5 && !result.diverged; step++) result = model.trainStep(batch);
    expect(result.diverged).toBe(true);
    const before = model.save();
    expectError("unsupported", ["training has stopped"], () => model.trainStep(batch));
    expect(equal(model.save(), before)).toBe(true);
    model.setOptimizer();
    expect(model.trainStep(batch).diverged).toBe(true);
    model.dispose();
  });

  it("names what is wrong with options", () => {
    const make = (options: unknown) => () => training.transformer(options as TransformerOptions);
    expectError("option", ["vocabulary"], make({}));
    expectError("range", ["vocabulary", "-1"], make({ vocabulary: -1 }));
    expectError("option", ["embed_dim", "embedDim"], make({ ...OPTIONS, embed_dim: 8 }));
    expectError("range", ["embedDim", "multiple of numHeads"], make({ ...OPTIONS, numHeads: 5 }));
    expectError("option", ["norm", '"rms"'], make({ ...OPTIONS, norm: "batch" }));
    expectError("option", ["nonsense"], make({ ...OPTIONS, mechanism: "nonsense" }));
    const long = (make: () => unknown) => {
      expect(make).toThrow(/mechanism/);
      expect(make).not.toThrow(/x{100}/);
    };
    long(make({ ...OPTIONS, mechanism: "x".repeat(1e6) }));
    expectError("unsupported", ["reformer"], make({ ...OPTIONS, mechanism: "reformer" }));
    const rwkv7 = make({ ...OPTIONS, mechanism: "rwkv7" });
    expectError("unsupported", ["rwkv7", "which an attention layer has not"], rwkv7);
    const logLinear = make({ ...OPTIONS, mechanism: "log_linear" });
    expectError("unsupported", ["log_linear"], logLinear);
    expectError("range", ["ropeBase"], make({ ...OPTIONS, ropeBase: Number.NaN }));
    expectError("option", ["params.windowLeft"], make({ ...OPTIONS, params: { windowLeft: {} } }));
    const params = (params: unknown) => make({ ...OPTIONS, params });
    expectError("option", ["windowLef", "window.left"], params({ windowLef: 1 }));
    expectError("option", ["windowLeft must be a number"], params({ windowLeft: "x" }));
    expectError("option", ["window.left must be a number"], params({ window: { left: "x" } }));
    const attention = { mechanism: "attention", params: { topK: 2 } };
    expectError("option", ["topK is read only by normalize"], make({ ...OPTIONS, ...attention }));
    expectError("option", ["returnLse"], params({ returnLse: true }));
    const nope = { ...OPTIONS, crossMechanism: "nope" };
    expectError("option", ['crossMechanism = "nope"', "without an encoder"], make(nope));
    expectError("option", ["crossMechanism", "nope"], make({ ...nope, encoderLayers: 1 }));
    expectError("option", ["params.queryOffset"], params({ queryOffset: new Array(2) }));
    expectError("option", ["params: got null"], params(null));
    expectError("option", ["numHeads: got null"], make({ ...OPTIONS, numHeads: null }));
    expectError("option", ["position: got null"], make({ ...OPTIONS, position: null }));
    expectError("range", ["numLayers", "1 to 1000"], make({ ...OPTIONS, numLayers: 2000 }));
    const odd = { ...OPTIONS, embedDim: 6, numHeads: 2 };
    expectError("range", ["embedDim / numHeads = 3", "even"], make(odd));
    expectError("unsupported", ["position", "not rope"], make({ ...OPTIONS, mechanism: "hgrn2" }));
    const model = training.transformer(OPTIONS);
    expectError("range", ["learningRate", "0"], () => model.setOptimizer({ learningRate: 0 }));
    expectError("range", ["minLearningRate"], () => model.setOptimizer({ minLearningRate: 1 }));
    expectError("range", ["beta2"], () => model.setOptimizer({ beta2: 1 }));
    expectError("range", ["totalSteps"], () =>
      model.setOptimizer({ warmupSteps: 5, totalSteps: 5 }),
    );
    model.dispose();
  });

  it("refuses what no call would take when a model is made, and before memory is taken", () => {
    const make = (options: object) => () => training.transformer({ ...OPTIONS, ...options });
    expectError("range", ["softcap = 0"], make({ params: { softcap: 0 } }));
    expectError("range", ["topK = 0"], make({ mechanism: "top_k", params: { topK: 0 } }));
    const long = { mechanism: "delta_rule", params: { chunkLen: 65 } };
    expectError("range", ["chunkLen = 65"], make(long));
    expectError("option", ["keepMod"], make({ params: { keepMod: "foo(" } }));
    expectError("option", ["scoreMod"], make({ params: { scoreMod: "score*a[h]" } }));
    expectError("range", ["dropout p = 1"], make({ params: { dropout: { p: 1 } } }));
    const before = training.memory().heapBytes;
    const huge = { vocabulary: 2 ** 28, embedDim: 1, numHeads: 1 };
    expectError("range", ["embedDim / numHeads = 1", "even"], make(huge));
    expect(training.memory().heapBytes).toBe(before);
  });

  it("takes the parameters of a mechanism as heed.run does", () => {
    const windows = [{ window: { left: 1, right: 0 } }, { windowLeft: 1, windowRight: 0 }];
    const [one, two] = windows.map((params) => {
      const model = training.transformer({ ...OPTIONS, params });
      const logits = model.predict({ tokens: [0, 1, 2, 3] }).data;
      model.dispose();
      return logits;
    });
    expect(one).toEqual(two);
    const model = training.transformer({ ...OPTIONS, params: {} });
    expect(one).not.toEqual(model.predict({ tokens: [0, 1, 2, 3] }).data);
    model.dispose();
  });

  it("drops in training alone, other weights in each step", () => {
    const make = (params: object) => training.transformer({ ...OPTIONS, params: params as never });
    const [whole, dropping] = [make({}), make({ dropout: { p: 0.5, seed: "3" } })];
    const batch = { tokens: [0, 1, 2, 3, 4, 5], targets: [1, 2, 3, 4, 5, 6] };
    expect(dropping.predict({ tokens: batch.tokens }).data).toEqual(
      whole.predict({ tokens: batch.tokens }).data,
    );
    for (const model of [whole, dropping]) model.setOptimizer({ learningRate: 1e-12 });
    const [loss = 0, again = 0] = [0, 1].map(() => dropping.trainStep(batch).loss);
    expect(Math.abs(loss - again)).toBeGreaterThan(1e-4);
    expect(Math.abs(loss - whole.trainStep(batch).loss)).toBeGreaterThan(1e-4);
    for (const model of [whole, dropping]) model.dispose();
  });

  it("changes nothing where no target counts", () => {
    const model = training.transformer(OPTIONS);
    model.setOptimizer({ learningRate: 1e-2, warmupSteps: 5 });
    model.trainStep({ tokens: [0, 1], targets: [1, 2] });
    const before = model.save();
    const ignored = model.trainStep({ tokens: [1, 2], targets: [-1, -1] });
    expect(ignored).toMatchObject({
      step: 1,
      loss: 0,
      counted: 0,
      gradientNorm: 0,
      diverged: false,
    });
    expect(equal(model.save(), before)).toBe(true);
    expect(model.trainStep({ tokens: [0, 1], targets: [1, 2] }).step).toBe(2);
    model.dispose();
  });

  it("takes seeds of 64 bits as bigints", () => {
    const batch = { tokens: [0, 1, 2, 3, 4, 5], targets: [1, 2, 3, 4, 5, 6] };
    const lossOf = (seed: number | bigint): number => {
      const model = training.transformer({ ...OPTIONS, params: { dropout: { p: 0.5, seed } } });
      const { loss } = model.trainStep(batch);
      model.dispose();
      return loss;
    };
    expect(lossOf(3n)).toBe(lossOf(3));
    expect(lossOf(2n ** 64n - 1n)).not.toBe(lossOf(2n ** 63n));
    for (const seed of [-1n, 2n ** 64n]) {
      expectError("range", ["dropout.seed", "2^64"], () => lossOf(seed));
    }
  });

  it("has functions that may be taken out of it", async () => {
    const { transformer, loadTransformer, memory, dispose } = await load(ONE);
    const model = transformer(OPTIONS);
    expect(loadTransformer(model.save()).sizes).toEqual(model.sizes);
    expect(memory().bytes).toBeGreaterThan(0);
    dispose();
    expect(memory().bytes).toBe(0);
  });

  it("names maxLen and arrays that are gone", () => {
    const model = training.transformer({ ...OPTIONS, position: "learned", maxLen: 3 });
    expectError("range", ["tokens", "maxLen = 3"], () => model.predict({ tokens: [0, 1, 2, 3] }));
    const tokens = new Int32Array(3);
    structuredClone(tokens, { transfer: [tokens.buffer] });
    expectError("disposed", ["tokens", "detached"], () => model.predict({ tokens }));
    model.dispose();
  });

  it("names what is wrong with a batch, and updates nothing", () => {
    const model = training.transformer(OPTIONS);
    const before = model.save();
    const step = (batch: object) => () => model.trainStep(batch as never);
    const good = { tokens: [0, 1], targets: [1, 2] };
    expectError("option", ["tokens"], step({ targets: [1] }));
    expectError("option", ["targets"], step({ tokens: [1] }));
    expectError("range", ["tokens[1]", "1.5"], step({ ...good, tokens: [0, 1.5] }));
    expectError("range", ["tokens[1] = 10", "vocabulary = 10"], step({ ...good, tokens: [0, 10] }));
    expectError("range", ["targets[1] = 10"], step({ ...good, targets: [0, 10] }));
    expectError("shape", ["targets has 1 ids", "2 tokens"], step({ ...good, targets: [1] }));
    expectError("shape", ["3 ids"], step({ tokens: [0, 1, 2], targets: [0, 1, 2], batch: 2 }));
    expectError("range", ["batch"], step({ ...good, batch: 0 }));
    expectError("option", ["target"], step({ ...good, target: [1] }));
    expectError("option", ["no predict()"], () => model.heads({ layer: 0 }));
    model.predict({ tokens: [0, 1] });
    const shown = model.heads({ layer: 0 });
    expectError("range", ["tokens[0] = 10"], () => model.predict({ tokens: [10, 1, 2] }));
    expectError("option", ["source"], () => model.predict({ tokens: [0], source: [1] }));
    expectError("range", ["targets[2] = 10"], step({ tokens: [0, 1, 2], targets: [1, 2, 10] }));
    expect(model.heads({ layer: 0 })).toEqual(shown);
    expectError("range", ["layer = 2"], () => model.heads({ layer: 2 }));
    expectError("option", ["cross-attention"], () => model.heads({ layer: 0, of: "cross" }));
    expect(equal(model.save(), before)).toBe(true);
    model.dispose();
  });

  it("refuses sizes that no 32-bit memory holds, and goes on", () => {
    const small = { vocabulary: 4, embedDim: 16, numHeads: 2, numLayers: 1 } as const;
    const places = { position: "learned", maxLen: 2 ** 28 } as const;
    expectError("memory", ["more elements"], () => training.transformer({ ...small, ...places }));
    const model = training.transformer({ ...small, mechanism: "linear" });
    const tokens = new Int32Array(2 ** 15);
    expectError("shape", ["tokens", "sequences"], () => model.predict({ tokens, batch: 3 }));
    model.predict({ tokens });
    // 2 heads of 2^15 x 2^15 floats.
    expectError("memory", ["no room", "8589934592"], () => model.heads({ layer: 0 }));
    const ids = new BigInt64Array(2) as unknown as number[];
    expectError("range", ["tokens[0]", "32 bits"], () => model.predict({ tokens: ids }));
    expect(model.predict({ tokens: [0, 1] }).shape).toEqual([1, 2, 4]);
    model.dispose();
  });

  it("refuses files of something else", () => {
    const load = (bytes: Uint8Array) => () => training.loadTransformer(bytes);
    const model = training.transformer(OPTIONS);
    const good = model.save();
    expectError("option", ["safetensors"], load(new Uint8Array(0)));
    expectError("option", ["safetensors"], load(new Uint8Array(100)));
    expectError("range", ["data"], load(good.slice(0, -1)));
    const huge = good.slice();
    huge.fill(255, 0, 8);
    expectError("option", ["safetensors"], load(huge));
    model.dispose();
  });

  it("gives memory back", () => {
    const before = training.memory().bytes;
    for (let round = 0; round < 3; round++) {
      const model = training.transformer(OPTIONS);
      model.trainStep(copyBatch(4, random(1)));
      model.heads({ layer: 0 });
      model.save();
      model.dispose();
      model.dispose();
      expectError("disposed", ["model"], () => model.save());
    }
    expect(training.memory().bytes).toBe(before);
  });

  it("has a web entry, and tells other files apart", async () => {
    const bytes = (file: string) => new Uint8Array(readFileSync(`${root}dist/wasm/${file}`));
    const wasmBinary = bytes("heed-training-simd.wasm");
    const kit = await loadOnWeb({ ...ONE, wasmBinary });
    expect([kit.variant, kit.simd]).toEqual(["simd", "plain"]);
    kit.dispose();
    expectError("disposed", ["instance"], () => kit.transformer(OPTIONS));
    const other = bytes("heed-core-simd.wasm");
    await expectRejection("wasm-load", ["expected training-simd"], () =>
      load({ ...ONE, wasmBinary: other }),
    );
  });
});
