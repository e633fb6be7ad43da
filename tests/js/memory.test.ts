import { readFileSync } from "node:fs";
import { type HeedError, load } from "heed";
import { describe, expect, it, vi } from "vitest";
import type { KernelGlue } from "../../dist/glue.js";
import { Heap } from "../../dist/heap.js";
import { Heed } from "../../dist/heed.js";
import { Registry } from "../../dist/registry.js";
import { expectError, expectRejection, randomData, root } from "./support.js";

const q = randomData([1, 2, 9, 8], 1);

/** The module below the package, to look at its heap and to break it. */
async function openModule() {
  const { default: factory } = (await import("../../dist/wasm/heed-simd.mjs")) as {
    default: (settings: object) => Promise<never>;
  };
  const glue: KernelGlue = await factory({
    wasmBinary: readFileSync(`${root}dist/wasm/heed-simd.wasm`),
  });
  glue.setThreads(1);
  const heap = new Heap(glue);
  const choice = {
    variant: "simd",
    threads: 1,
    simd: "plain",
    reasons: { threads: "a test", simd: "a test" },
  } as const;
  const loadReference = () => Promise.reject(new Error("not in this test"));
  const parts = {
    heap,
    registry: new Registry(heap, "full"),
    choice,
    build: "full" as const,
    version: "test",
    loadReference,
  };
  // The constructor is internal, so its parameters are not in the published types.
  const heed = new (Heed as unknown as new (given: typeof parts) => Heed)(parts);
  return { glue, heap, heed };
}

describe("the heap", () => {
  it("is where it was after 1000 good and 1000 failing calls", async () => {
    const { glue, heed } = await openModule();
    const tensor = heed.tensor(q.data, q.shape);
    const options = { causal: true, keep: [[true]], sinks: [0, 0], returnLse: true } as const;
    const good = () => {
      heed.attention(q, q, q, options);
      const { output, lse } = heed.attention(tensor, q, q, options);
      output.dispose();
      lse.dispose();
    };
    const bad = () => {
      expectError("shape", ["keep"], () =>
        heed.attention(tensor, q, q, { ...options, keep: [[true, true]] }),
      );
      // This one is refused by C++, after the inputs were copied.
      expectError("unsupported", [], () =>
        heed.run("kernel_regression", { q, k: q, v: q }, { kernel: "boxcar", returnLse: true }),
      );
    };
    good();
    const level = glue.heapInUse();
    const { heapBytes } = heed.memory();
    for (let i = 0; i < 1000; i++) good();
    expect(glue.heapInUse()).toBe(level);
    for (let i = 0; i < 1000; i++) bad();
    expect(glue.heapInUse()).toBe(level);
    expect(heed.memory()).toEqual({ tensors: 1, bytes: q.data.byteLength, heapBytes });
    tensor.dispose();
    expect(glue.heapInUse()).toBeLessThan(level);
  });
});

describe("the tables of the registry", () => {
  it("leave nothing behind in the heap", async () => {
    const { glue, heap } = await openModule();
    const level = glue.heapInUse();
    new Registry(heap, "full");
    expect(glue.heapInUse()).toBe(level);
  });

  it("need memory, and say so when there is none", async () => {
    const { glue, heap } = await openModule();
    glue.parameters = () => 0;
    expectError("memory", ["heed.parameters", "no room"], () => new Registry(heap, "full"));
  });
});

describe("a trapped instance", () => {
  it("says crashed from then on, and load() gives a new one", async () => {
    const { glue, heed } = await openModule();
    const tensor = heed.tensor(q.data, q.shape);
    const cache = new heed.KvCache({ batch: 1, numKvHeads: 1, headDim: 2 });
    const trap = new WebAssembly.RuntimeError("unreachable");
    glue.run = () => {
      throw trap;
    };
    expectError("crashed", ["unreachable", "load()"], () => heed.attention(q, q, q));
    expectError("crashed", ["load()"], () => heed.attention(q, q, q));
    expectError("crashed", [], () => heed.tensor([1], [1]));
    expectError("crashed", [], () => tensor.data);
    cache.dispose();
    tensor.dispose();
    heed.dispose();
    const fresh = await load({ threads: 1 });
    expect(fresh.attention(q, q, q).output.shape).toEqual(q.shape);
  });

  it("stops its threads, of which another may have trapped too", async () => {
    const { glue, heed } = await openModule();
    glue.run = () => {
      throw new WebAssembly.RuntimeError("unreachable");
    };
    const terminateAllThreads = vi.fn();
    glue.PThread = { terminateAllThreads };
    expectError("crashed", [], () => heed.attention(q, q, q));
    expect(terminateAllThreads).toHaveBeenCalledOnce();
  });

  it("keeps the trap as the cause", async () => {
    const { glue, heed } = await openModule();
    glue.run = () => {
      throw new WebAssembly.RuntimeError("memory access out of bounds");
    };
    try {
      heed.attention(q, q, q);
      expect.fail("it should have thrown");
    } catch (error) {
      expect((error as HeedError).cause).toBeInstanceOf(WebAssembly.RuntimeError);
    }
  });
});

describe("functions of an instance", () => {
  it("may be taken out of it", async () => {
    const { memory, reference, dispose } = await load({ threads: 1 });
    expect(memory().tensors).toBe(0);
    const { output } = await reference("scaled_dot_product", { q, k: q, v: q });
    expect(output.shape).toEqual(q.shape);
    dispose();
    expect(memory().tensors).toBe(0);
    await expectRejection("disposed", [], () => reference("rope", {}));
  });
});

describe("a disposed instance", () => {
  it("refuses everything, twice disposing is nothing", async () => {
    const heed = await load({ threads: 1 });
    const tensor = heed.tensor(q.data, q.shape);
    heed.dispose();
    heed.dispose();
    expect(tensor.disposed).toBe(true);
    expectError("disposed", [], () => tensor.data);
    expectError("disposed", [], () => heed.attention(q, q, q));
    expectError("disposed", [], () => heed.tensor([1], [1]));
    await expectRejection("disposed", [], () =>
      heed.reference("scaled_dot_product", { q, k: q, v: q }),
    );
    tensor.dispose();
  });
});
