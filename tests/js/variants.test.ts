import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { load } from "heed";
import { describe, expect, it, vi } from "vitest";
import { expectClose, expectError, largest, MAX_ERROR, randomData, root } from "./support.js";

const PROBLEM = {
  q: randomData([2, 6, 65, 40], 1),
  k: randomData([2, 2, 130, 40], 2),
  v: randomData([2, 2, 130, 24], 3),
};
const OPTIONS = { causal: true, queryOffset: "end", softcap: 20, returnLse: true } as const;

/** A Node whose engine has relaxed SIMD: this one from version 22 on, else the one of the set-up. */
async function nodeWithRelaxedSimd(): Promise<string[] | undefined> {
  if (Number(process.versions.node.split(".")[0]) >= 22) return [process.execPath];
  const setup = `${root}scripts/toolchain.mjs`;
  const tools = existsSync(setup)
    ? ((await import(setup)) as { toolchain?: () => { node24?: string | null } }).toolchain?.()
    : undefined;
  const node24 = process.env.HEED_NODE24 ?? tools?.node24;
  if (node24 && existsSync(node24)) return [node24];
  return [process.execPath, "--experimental-wasm-relaxed-simd"];
}

/** Runs the problem in a fresh process and returns what it printed. */
function runElsewhere(node: string[], loadOptions: object): { variant: string; output: number[] } {
  const { q, k, v } = PROBLEM;
  const plain = ({ data, shape }: typeof q) => JSON.stringify({ data: Array.from(data), shape });
  const script = `
    import { load } from ${JSON.stringify(`${root}dist/node.js`)};
    const heed = await load(${JSON.stringify(loadOptions)});
    const { output } = heed.attention(${plain(q)}, ${plain(k)}, ${plain(v)}, ${JSON.stringify(OPTIONS)});
    console.log(JSON.stringify({ variant: heed.variant, output: Array.from(output.data) }));
  `;
  const folder = mkdtempSync(join(tmpdir(), "heed-variants-"));
  try {
    writeFileSync(join(folder, "run.mjs"), script);
    const [program = "", ...flags] = node;
    const printed = execFileSync(program, [...flags, "run.mjs"], {
      cwd: folder,
      encoding: "utf8",
      timeout: 60_000,
    });
    return JSON.parse(printed) as { variant: string; output: number[] };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function referenceOutput(): Promise<Float64Array> {
  const heed = await load({ threads: 1 });
  const { returnLse, ...params } = OPTIONS;
  return (await heed.reference("scaled_dot_product", PROBLEM, params)).output.data;
}

describe("an engine without exceptions or atomics", () => {
  const TRY = [0x06, 0x40];
  const ATOMIC_LOAD = [0xfe, 0x10];
  it.each([
    ["exceptions", TRY],
    ["atomics", ATOMIC_LOAD],
  ])("is told that it lacks %s", async (name, instruction) => {
    const real = WebAssembly.validate;
    const validate = vi
      .spyOn(WebAssembly, "validate")
      .mockImplementation(
        (bytes) =>
          real(bytes) && !Buffer.from(bytes as Uint8Array).includes(Buffer.from(instruction)),
      );
    try {
      const message = expect.stringContaining(name);
      await expect(load()).rejects.toMatchObject({ code: "unsupported", message });
    } finally {
      validate.mockRestore();
    }
    expect((await load({ threads: 1 })).threads).toBe(1);
  });
});

describe("plain SIMD", () => {
  it("gives the same bits for 1, 2 and 3 threads", async () => {
    const { q, k, v } = PROBLEM;
    const results = [];
    for (const threads of [1, 2, 3]) {
      const heed = await load({ simd: "plain", threads });
      expect(heed.threads).toBe(threads);
      expect(heed.variant).toBe(threads === 1 ? "simd" : "simd-threads");
      const { output, lse } = heed.attention(q, k, v, OPTIONS);
      expect(output.data.buffer).toBeInstanceOf(ArrayBuffer);
      results.push({ output: output.data, lse: lse.data });
      heed.dispose();
    }
    expect(results[1]).toEqual(results[0]);
    expect(results[2]).toEqual(results[0]);
  });

  it("keeps tensors in shared memory apart from plain results", async () => {
    const heed = await load({ simd: "plain", threads: 2 });
    const tensor = heed.tensor([1, 2, 3, 4], [2, 2]);
    const { output } = heed.attention(tensor, tensor, tensor);
    expect(output.data.buffer).toBeInstanceOf(SharedArrayBuffer);
    expect(output.toNested()).toEqual([expect.any(Array), expect.any(Array)]);
    heed.dispose();
  });

  it("shares memory that grows", async () => {
    const heed = await load({ simd: "plain", threads: 2 });
    const tensor = heed.tensor([1, 2, 3, 4], [2, 2]);
    const { data } = tensor;
    const before = heed.memory().heapBytes;
    expect(before).toBeLessThan(2 ** 26);
    const long = randomData([1, 1, 12_000, 1], 1);
    const { weights } = heed.attention(long, long, long, { returnWeights: true }); // 576 MB
    expect(heed.memory().heapBytes).toBeGreaterThan(2 ** 29);
    expect(weights?.data.slice(-12_000).reduce((sum, weight) => sum + weight, 0)).toBeCloseTo(1, 4);
    // A view of the memory as it was shows what lies there still.
    data[0] = 5;
    expect([...tensor.data]).toEqual([5, 2, 3, 4]);
    expect(heed.tensor(data, [4]).data.buffer.byteLength).toBe(heed.memory().heapBytes);
    heed.dispose();
  });

  it("says when 4 GB are full, and works on", async () => {
    const heed = await load({ simd: "plain", threads: 2 });
    const len = 32_767; // weights that fill all but a quarter of a megabyte
    const rows = { data: new Float32Array(len), shape: [len, 1] };
    expectError("memory", ["weights", `no room for ${4 * len * len} more bytes`], () =>
      heed.attention(rows, rows, rows, { returnWeights: true }),
    );
    const { q, k, v } = PROBLEM;
    expect(heed.attention(q, k, v, OPTIONS).output.data.every(Number.isFinite)).toBe(true);
    heed.dispose();
  });

  it("lets a process with threads end by itself", () => {
    const { variant } = runElsewhere([process.execPath], { simd: "plain", threads: 2 });
    expect(variant).toBe("simd-threads");
  });
});

describe("a script on the command line", () => {
  it("runs on one thread: its flags would stop the workers", () => {
    const script = `
      import { load } from ${JSON.stringify(`${root}dist/node.js`)};
      const { threads, reasons } = await load({ threads: 2 });
      console.log(threads, reasons.threads);
    `;
    const args = ["--input-type=module", "--eval", script];
    const printed = execFileSync(process.execPath, args, { encoding: "utf8", timeout: 60_000 });
    expect(printed).toContain("1 node --input-type");
  });
});

describe("relaxed SIMD", () => {
  it.each([1, 2])("matches the reference with %i thread(s)", async (threads) => {
    const node = await nodeWithRelaxedSimd();
    expect(node).toBeDefined();
    const { variant, output } = runElsewhere(node as string[], { simd: "relaxed", threads });
    expect(variant).toBe(threads === 1 ? "relaxed" : "relaxed-threads");
    const bound = MAX_ERROR * largest(PROBLEM.v.data);
    expectClose("output", output, await referenceOutput(), bound);
  });
});

describe("auto", () => {
  it("says what it chose and why", async () => {
    const heed = await load();
    expect(heed.threads).toBeGreaterThanOrEqual(1);
    expect(heed.reasons.threads).not.toBe("");
    expect(heed.reasons.simd).toContain("relaxed SIMD");
    const { q, k, v } = PROBLEM;
    const bound = MAX_ERROR * largest(v.data);
    expectClose(
      "output",
      heed.attention(q, k, v, OPTIONS).output.data,
      await referenceOutput(),
      bound,
    );
    heed.dispose();
  });
});
