// heed/worker: the same numbers as heed, by promises; and what happens when a worker ends.
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { load, VERSION } from "heed";
import { type RemoteHeed, type SpawnOptions, spawn } from "heed/worker";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectRejection, randomData, root } from "./support.js";

const ONE = { threads: 1, simd: "plain" } as const;
const q = randomData([1, 2, 33, 16], 1);
const k = randomData([1, 2, 47, 16], 2);
const v = randomData([1, 2, 47, 8], 3);
const OPTIONS = { causal: true, queryOffset: "end", returnLse: true } as const;

/** A call that takes long enough to be interrupted. */
const long = randomData([1, 8, 4096, 64], 4);

let heed: RemoteHeed;
let here: Awaited<ReturnType<typeof load>>;
beforeAll(async () => {
  [heed, here] = await Promise.all([spawn(ONE), load(ONE)]);
});
afterAll(() => heed?.dispose());

/** A `spawn` whose workers can be reached from outside. */
async function spawnWatched(
  options: SpawnOptions = ONE,
  script: string = `${root}dist/node_worker_script.js`,
) {
  const workers: Worker[] = [];
  const worker = (): Worker => {
    const made = new Worker(script);
    workers.push(made);
    return made;
  };
  return { workers, heed: await spawn({ ...options, worker }) };
}

describe("heed/worker", () => {
  it("knows at once what was loaded", () => {
    expect(heed.version).toBe(VERSION);
    expect(heed).toMatchObject({ build: "full", variant: "simd", threads: 1, simd: "plain" });
    expect(heed.reasons.threads).toBe("one thread was asked for");
    expect(heed.mechanisms).toEqual(here.mechanisms);
    expect(heed.parameters).toEqual(here.parameters);
  });

  it("has every function of an instance", () => {
    const names = (object: object): string[] =>
      Object.getOwnPropertyNames(object).filter((name) => name !== "constructor");
    const wanted = [...names(here), ...names(Object.getPrototypeOf(here))];
    expect(names(heed).sort()).toEqual(wanted.sort());
    expect(typeof heed.attention.vjp).toBe("function");
    expect(typeof heed.run.vjp).toBe("function");
  });

  it("gives the bits that heed gives", async () => {
    const there = await heed.attention(q, k, v, OPTIONS);
    const wanted = here.attention(q, k, v, OPTIONS);
    expect(there.output.data).toEqual(wanted.output.data);
    expect(there.lse.data).toEqual(wanted.lse.data);
    expect(there.output.toNested()).toEqual(wanted.output.toNested());
    const [run, oracle] = await Promise.all([
      heed.run("retention", { q, k: q, v: q }),
      heed.reference("scaled_dot_product", { q, k, v }, { causal: true, queryOffset: "end" }),
    ]);
    expect(await run.output.data).toEqual(here.run("retention", { q, k: q, v: q }).output.data);
    expect(oracle.output.dtype).toBe("float64");
    expect(await heed.softmax([[1, 2]])).toMatchObject({ shape: [1, 2] });
    expect(await heed.lastN(4)).toEqual({ left: 3, right: 0 });
    expect((await heed.memory()).tensors).toBe(0);
  });

  it("keeps tensors in the worker, and frees them", async () => {
    const [keys, values] = await Promise.all([
      heed.tensor(k.data, k.shape),
      heed.tensor(v.data, v.shape),
    ]);
    const { output } = await heed.attention(q, keys, values);
    expect(output).toMatchObject({ dtype: "float32", shape: [1, 2, 33, 8], disposed: false });
    const wanted = here.attention(q, k, v).output;
    expect(await output.data).toEqual(wanted.data);
    expect(await output.toNested()).toEqual(wanted.toNested());
    expect((await heed.memory()).tensors).toBe(3);
    for (const tensor of [keys, values, output]) await tensor.dispose();
    expect(output.disposed).toBe(true);
    expect((await heed.memory()).tensors).toBe(0);
    await expectRejection("disposed", [], () => heed.attention(q, keys, v));
  });

  it("has tensors that stay what they are, and functions that may be taken out of it", async () => {
    const { tensor: make, memory, softmax } = heed;
    const tensor = await make([1, 2], [1, 2]);
    expect(() => {
      (tensor as { shape: readonly number[] }).shape = [2, 1];
    }).toThrow(TypeError);
    expect((await memory()).tensors).toBe(1);
    await (await softmax(tensor)).dispose();
    await tensor.dispose();
  });

  it("goes back through a call", async () => {
    const gradOutput = randomData([1, 2, 33, 8], 5);
    const there = await heed.attention.vjp(q, k, v, OPTIONS);
    const wanted = here.attention.vjp(q, k, v, OPTIONS);
    const exact = wanted.backward(gradOutput);
    for (let again = 0; again < 2; again++) {
      const gradients = await there.backward(gradOutput);
      expect(gradients.q.data).toEqual(exact.q.data);
      expect(gradients.v.data).toEqual(exact.v.data);
    }
    await there.dispose();
    await expectRejection("disposed", ["vjp"], () => there.backward(gradOutput));
    wanted.dispose();
  });

  it("makes caches and layers", async () => {
    const cache = await new heed.KvCache({ numKvHeads: 2, headDim: 16, headDimV: 8 });
    await cache.append(k, v);
    expect(await cache.lengths).toEqual([47]);
    const { output } = await cache.attend(q);
    const wanted = here.attention(q, k, v, { causal: true, queryOffset: "end" });
    expect(output.data).toEqual(wanted.output.data);
    const fork = await cache.fork();
    await cache.dispose();
    expect([cache.disposed, fork.disposed]).toEqual([true, false]);
    expect(await fork.lengths).toEqual([47]);
    await fork.dispose();

    const layer = await new heed.MultiHeadAttention({ embedDim: 8, numHeads: 2 });
    const members = [
      "dispose",
      "disposed",
      "forward",
      "loadKerasWeights",
      "loadStateDict",
      "options",
    ];
    expect(Object.keys(layer).sort()).toEqual(members);
    expect(await layer.options).toMatchObject({ embedDim: 8, numHeads: 2, headDim: 4 });
    await expectRejection("option", ["loadStateDict"], () =>
      layer.forward(randomData([1, 3, 8], 6)),
    );
    await layer.dispose();
  });

  it("says what is wrong as heed does", async () => {
    await expectRejection("option", ["mask", "keep"], () =>
      heed.attention(q, k, v, { mask: [[true]] } as never),
    );
    await expectRejection("range", ["softcap"], () => heed.attention(q, k, v, { softcap: -1 }));
    await expectRejection("option", ["did you mean `threads`"], () =>
      spawn({ thread: 1 } as never),
    );
    await expectRejection("option", ["a function that makes a Worker"], () =>
      spawn({ worker: 1 } as never),
    );
    await expectRejection("option", ["sent to a worker"], () =>
      heed.attention(q, k, v, { scale: (() => 1) as never }),
    );
    for (const name of ["scoreMod", "keepMod", "probMod"]) {
      await expectRejection("option", [name, "an expression as text"], () =>
        heed.attention(q, k, v, { [name]: () => 1 } as never),
      );
    }
    await expectRejection("option", ["await new heed.KvCache"], async () =>
      (heed.KvCache as unknown as () => void)(),
    );
    const inherited = Object.create({ causal: true }) as { signal?: AbortSignal };
    inherited.signal = new AbortController().signal;
    await expectRejection("option", ["options", "plain object"], () =>
      heed.attention(q, k, v, inherited),
    );
    await expectRejection("option", ["argument 1", "a promise", "await"], () =>
      heed.attention(heed.tensor(q.data, q.shape) as never, k, v),
    );
    await expectRejection("option", ["asked for nothing"], () => heed.analyze(q, k, {}));
    const other = await spawn(ONE);
    const stranger = await other.tensor([1], [1]);
    await expectRejection("option", ["another spawn()"], () => heed.softmax(stranger));
    await other.dispose();
  });
});

describe("arguments", () => {
  it("are taken as they are when the call is made, however long it waits", async () => {
    const first = heed.attention(q, k, v);
    const changing = { data: Float32Array.from(q.data), shape: q.shape };
    const second = heed.attention(changing, k, v);
    changing.data.fill(0);
    expect((await second).output.data).toEqual((await first).output.data);
    expect(changing.data.length).toBe(q.data.length);
  });

  it("are given away when that is asked for, all or some", async () => {
    const copy = () => ({ data: Float32Array.from(q.data), shape: q.shape });
    const [one, two] = [copy(), copy()];
    const wanted = here.attention(q, q, q).output.data;
    const all = await heed.attention(one, one, two, { transfer: true });
    expect(all.output.data).toEqual(wanted);
    expect([one.data.length, two.data.length]).toEqual([0, 0]);
    const [three, four] = [copy(), copy()];
    const some = await heed.attention(three, four, four, { transfer: [three.data.buffer] });
    expect(some.output.data).toEqual(wanted);
    expect([three.data.length, four.data.length]).toEqual([0, q.data.length]);
    await expectRejection("disposed", ["detached"], () => heed.attention(three, k, v));
    await expectRejection("option", ["transfer"], () =>
      heed.attention(q, k, v, { transfer: "yes" } as never),
    );
  });

  it("stay where they are when the call is refused", async () => {
    const given = { data: Float32Array.from(q.data), shape: q.shape };
    await expectRejection("option", ["argument 3", "a function"], () =>
      heed.attention(given, given, (() => 1) as never, { transfer: true }),
    );
    const gone = { data: Float32Array.from(q.data), shape: q.shape };
    structuredClone(gone.data, { transfer: [gone.data.buffer] });
    await expectRejection("disposed", ["detached"], () =>
      heed.attention(given, given, gone, { transfer: true }),
    );
    expect(given.data).toEqual(q.data);
  });

  it("may be parts of a larger buffer", async () => {
    const whole = new Float32Array(q.data.length + 100);
    whole.set(q.data, 50);
    const part = { data: whole.subarray(50, 50 + q.data.length), shape: q.shape };
    const { output } = await heed.attention(part, k, v);
    expect(output.data).toEqual(here.attention(q, k, v).output.data);
  });
});

describe("results", () => {
  it("are known where a development server has loaded a file of the package twice", async () => {
    const dist = new URL("dist/", pathToFileURL(root));
    const { ResultPacker } = await import(new URL("remote_results.js", dist).href);
    const { plainTensor } = await import(new URL("tensor.js?again", dist).href);
    const data = new Float32Array([1, 2]);
    const packed = new ResultPacker().pack({ output: plainTensor(data, [2], "float32") });
    const output = { is: "plain", data, shape: [2], dtype: "float32" };
    expect(packed).toEqual({ is: "record", fields: { output } });
  });
});

describe("an AbortSignal", () => {
  it("that was aborted before stops the call at once", async () => {
    const reason = new Error("enough");
    const signal = AbortSignal.abort(reason);
    const failed = await heed.attention(q, k, v, { signal }).catch((error) => error);
    expect(failed).toMatchObject({ code: "aborted", cause: reason });
    const halves = [{}, { aborted: false, addEventListener() {} }, { removeEventListener() {} }];
    for (const half of halves) {
      await expectRejection("option", ["signal", "AbortSignal"], () =>
        heed.attention(q, k, v, { signal: half } as never),
      );
    }
  });

  it("takes a call out of the queue and leaves the others alone", async () => {
    const controller = new AbortController();
    const tensor = await heed.tensor(q.data, q.shape);
    const first = heed.attention(q, k, v);
    const second = heed.attention(tensor, k, v, { signal: controller.signal });
    controller.abort();
    await expectRejection("aborted", ["signal"], () => second);
    expect((await first).output.shape).toEqual([1, 2, 33, 8]);
    expect(tensor.disposed).toBe(false);
    await tensor.dispose();
  });

  it("ends the worker of a call that runs; the next call has a new one", async () => {
    const { workers, heed } = await spawnWatched();
    const tensor = await heed.tensor(q.data, q.shape);
    const controller = new AbortController();
    const running = heed.attention(long, long, long, { signal: controller.signal });
    const waiting = heed.attention(q, k, v);
    const bound = heed.attention(tensor, k, v);
    setTimeout(() => controller.abort(), 50);
    await expectRejection("aborted", [], () => running);
    expect((await waiting).output.data).toEqual(here.attention(q, k, v).output.data);
    await expectRejection("disposed", ["make it again"], () => bound);
    expect(workers.length).toBe(2);
    expect(tensor.disposed).toBe(true);
    await expectRejection("disposed", ["make it again"], () => heed.attention(tensor, k, v));
    await tensor.dispose();
    await heed.dispose();
  });
});

describe("what cannot be sent", () => {
  it("is refused by name, also where its fields would be lost", async () => {
    const cyclic: Record<string, unknown> = { causal: true };
    cyclic.captured = cyclic;
    const call = (options: unknown) => () => heed.attention(q, k, v, options as never);
    await expectRejection("option", ["argument 4", "in itself"], call(cyclic));
    await expectRejection("option", ["plain object"], call(Object.create({ causal: true })));
    await expectRejection("option", ["plain object"], call(new Map([["causal", true]])));
    await expectRejection("option", ["argument 4", "a symbol"], call(new Map([[Symbol(), true]])));
  });

  it("is not a tensor of another kind, nor a Buffer", async () => {
    const { data, shape } = q;
    const foreign = new (class {
      get data() {
        return data;
      }
      get shape() {
        return shape;
      }
    })();
    const keep = { data: Buffer.alloc(33 * 47, 1), shape: [33, 47] };
    const { output } = await heed.attention(foreign, k, v, { keep });
    expect(output.data).toEqual(here.attention(q, k, v).output.data);
  });

  it("is no progress bar that fails", async () => {
    const onProgress = () => {
      throw new Error("no bar");
    };
    const another = await spawn({ ...ONE, onProgress });
    expect((await another.attention(q, k, v)).output.shape).toEqual([1, 2, 33, 8]);
    await another.dispose();
  });
});

describe("a worker that ends", () => {
  it("rejects the call that ran with `crashed`; the next call has a new one", async () => {
    const { workers, heed } = await spawnWatched();
    const running = heed.attention(long, long, long);
    const waiting = heed.attention(q, k, v);
    setTimeout(() => void workers[0]?.terminate(), 50);
    await expectRejection("crashed", ["the next call gets a new one"], () => running);
    expect((await waiting).output.shape).toEqual([1, 2, 33, 8]);
    expect(workers.length).toBe(2);
    await heed.dispose();
  });

  it("while nothing runs is replaced without a word", async () => {
    const { workers, heed } = await spawnWatched();
    const ended = new Promise((resolve) => workers[0]?.on("exit", resolve));
    await workers[0]?.terminate();
    await ended;
    expect((await heed.attention(q, k, v)).output.shape).toEqual([1, 2, 33, 8]);
    expect(workers.length).toBe(2);
    await heed.dispose();
  });

  it("because its instance trapped is replaced as well", async () => {
    const { workers, heed } = await spawnWatched(ONE, `${root}tests/js/trapping_worker.mjs`);
    const tensor = await heed.tensor([1], [1]);
    await expectRejection("crashed", ["instance crashed"], () => heed.softmax([[1]]));
    expect(tensor.disposed).toBe(true);
    expect((await heed.attention(q, k, v)).output.shape).toEqual([1, 2, 33, 8]);
    expect(workers.length).toBe(2);
    await heed.dispose();
  });

  it("for good, by dispose(), rejects whatever waits", async () => {
    const heed = await spawn(ONE);
    const calls = [heed.attention(long, long, long), heed.attention(q, k, v)];
    const outcomes = Promise.allSettled(calls);
    await heed.dispose();
    for (const outcome of await outcomes) {
      expect(outcome).toMatchObject({ status: "rejected", reason: { code: "disposed" } });
    }
    await expectRejection("disposed", [], () => heed.attention(q, k, v));
    await heed.dispose();
  });
});

describe("spawn", () => {
  it("says why nothing could be loaded", async () => {
    await expectRejection("wasm-load", ["could not be read"], () =>
      spawn({ wasmUrl: `file://${root}none.wasm` }),
    );
    const worker = () => new Worker(`${root}none.js`);
    await expectRejection("wasm-load", ["could not be started"], () => spawn({ worker }));
    await expectRejection("range", ["threads"], () => spawn({ threads: 0 }));
  });

  it("takes the options of load, and reports progress", async () => {
    const seen: { loaded: number; total: number | undefined }[] = [];
    const asked: string[] = [];
    const heed = await spawn({
      ...ONE,
      onProgress: (progress) => seen.push(progress),
      wasmUrl(file) {
        asked.push(file);
        return new URL(`file://${root}dist/wasm/${file}`);
      },
    });
    expect(heed.variant).toBe("simd");
    expect(asked).toContain("heed-simd-threads.wasm");
    expect(seen.at(-1)?.loaded).toBeGreaterThan(1000);
    expect(seen.at(-1)?.total).toBe(seen.at(-1)?.loaded);
    const { output } = await heed.attention(q, k, v);
    expect(output.data).toEqual(here.attention(q, k, v).output.data);
    await heed.dispose();
  });

  it("has threads of its own in the worker", async () => {
    const heed = await spawn({ threads: 2, simd: "plain" });
    expect(heed).toMatchObject({ threads: 2, variant: "simd-threads" });
    const { output } = await heed.attention(q, k, v);
    expect(output.data).toEqual(here.attention(q, k, v).output.data);
    await heed.dispose();
  });
});
