// The page's side of a model: order, abort, time limits, bad requests, and where weights lie.
import { HeedError, load } from "heed";
import { afterEach, describe, expect, test, vi } from "vitest";
import { ResidentMatrix, StoredMatrix } from "../../web/src/model/matrix.js";
import { inEnglish, shown, t } from "../../web/src/model/message.js";
import { type ModelPort, openModel } from "../../web/src/model/model_client.js";
import type { OpenProgress } from "../../web/src/model/model_types.js";
import type { TensorEntry } from "../../web/src/model/safetensors.js";
import { placementOf } from "../../web/src/model/weights.js";
import {
  asFloat16,
  float16,
  gpt2Numbers,
  jsonBlob,
  type Sizes,
  safetensors,
  tensorsOf,
} from "./model_files.js";
import { expectModelError, heed, localPort, openHere } from "./model_support.js";
import { randomData } from "./support.js";
import { byteTokenizer } from "./tokenizer_files.js";

const SIZES: Sizes = {
  layers: 3,
  heads: 2,
  kvHeads: 2,
  headDim: 4,
  embed: 8,
  hidden: 12,
  vocab: 300,
  positions: 40,
};
const weights = safetensors(tensorsOf(gpt2Numbers(SIZES)));
const config = jsonBlob({ n_head: 2 });
const tokenizer = jsonBlob(byteTokenizer([]));
const IDS = [1, 2, 3, 4];

afterEach(() => {
  vi.useRealTimers();
});

/** A worker that says nothing by itself. */
function deafPort(): ModelPort & { terminated: boolean } {
  const port = {
    terminated: false,
    onmessage: null,
    onerror: null,
    postMessage: () => {},
    terminate: () => {
      port.terminated = true;
    },
  };
  return port;
}

describe("opening", () => {
  test("tells how far it has come", async () => {
    const seen: OpenProgress[] = [];
    const client = await openHere(
      { weights, config, tokenizer },
      { onProgress: (progress) => seen.push(progress) },
    );
    expect([...new Set(seen.map(({ stage }) => stage))]).toEqual([
      "header",
      "tokenizer",
      "engine",
      "weights",
    ]);
    expect(seen.at(-1)?.fraction).toBe(1);
    expect(client.facts.hasTokenizer).toBe(true);
    const { ids } = await client.encode("a model");
    expect(await client.decode(ids)).toBe("a model");
    expect((await client.pieces(ids)).map(({ text }) => text).join("")).toBe("a model");
    client.dispose();
  });

  test("reads no more than a slice at a time, and nothing twice", async () => {
    const read: [number, number][] = [];
    const file = {
      size: weights.size,
      slice: (begin: number, end: number) => {
        read.push([begin, end]);
        return weights.slice(begin, end);
      },
    };
    const client = await openHere({ weights: file as unknown as Blob, config });
    const bytes = read.reduce((sum, [begin, end]) => sum + end - begin, 0);
    // The first 9 bytes are looked at before the header's length is known.
    expect(bytes).toBe(weights.size + 1);
    client.dispose();
  });

  test("a tokenizer with more ids than the model is refused", async () => {
    const small = safetensors(tensorsOf(gpt2Numbers({ ...SIZES, vocab: 256 })));
    await expectModelError("mismatch", ["256", "below 256"], () =>
      openHere({ weights: small, config, tokenizer }),
    );
  });

  test("ends the worker when it fails or is aborted", async () => {
    const ports = [localPort(), localPort(), deafPort()] as const;
    await expectModelError("not-a-model", [], () =>
      openModel({ weights: new Blob(["nothing"]) }, {}, () => ports[0]),
    );
    const controller = new AbortController();
    const { signal } = controller;
    const onProgress = ({ stage }: OpenProgress) => stage === "weights" && controller.abort();
    await expectModelError("aborted", [], () =>
      openModel({ weights, config }, { signal, onProgress }, () => ports[1]),
    );
    await expectModelError("aborted", [], () => openModel({ weights }, { signal }, () => ports[2]));
    expect(ports.map(({ terminated }) => terminated)).toEqual([true, true, false]);
  });

  test("a header that takes too long is given up, and a worker that dies is noticed", async () => {
    vi.useFakeTimers();
    const port = deafPort();
    const opening = openModel({ weights }, {}, () => port);
    const refused = expectModelError("timeout", ["30 seconds"], () => opening);
    const data = { call: 1, progress: { stage: "header", fraction: 0 } } as const;
    port.onmessage?.({ data } as unknown as MessageEvent);
    await vi.advanceTimersByTimeAsync(30_001);
    await refused;
    expect(port.terminated).toBe(true);
    const dying = deafPort();
    const dead = expectModelError("crashed", ["out of memory"], () =>
      openModel({ weights }, {}, () => dying),
    );
    dying.onerror?.({ message: "out of memory" } as ErrorEvent);
    await dead;
  });
});

describe("calls", () => {
  test("are computed in their order; one that was aborted leaves the others alone", async () => {
    const client = await openHere({ weights, config });
    const controller = new AbortController();
    const order: string[] = [];
    const first = client.run({ ids: IDS }).then(() => order.push("first"));
    const aborted = expectModelError("aborted", [], () =>
      client.run({ ids: IDS, signal: controller.signal }),
    );
    const last = client.run({ ids: IDS }).then(() => order.push("last"));
    controller.abort();
    await Promise.all([first, aborted, last]);
    expect(order).toEqual(["first", "last"]);
    await expectModelError("aborted", [], () =>
      client.run({ ids: IDS, signal: controller.signal }),
    );
    client.dispose();
  });

  test("a run is aborted between two layers", async () => {
    const client = await openHere({ weights, config });
    const controller = new AbortController();
    const { layerNorm } = heed;
    let norms = 0;
    // A slow machine: the page is heard between layers.
    const slow = vi.spyOn(heed, "layerNorm").mockImplementation(((...given: never[]) => {
      const end = performance.now() + 60;
      while (performance.now() < end);
      if (++norms === 2) controller.abort();
      return (layerNorm as (...all: never[]) => unknown)(...given);
    }) as never);
    try {
      await expectModelError("aborted", [], () =>
        client.run({ ids: IDS, signal: controller.signal }),
      );
    } finally {
      slow.mockRestore();
    }
    expect(norms).toBeLessThan(2 * SIZES.layers + 1);
    expect((await client.run({ ids: IDS })).len).toBe(4);
    client.dispose();
  });

  test("a generation that is left early frees its cache", async () => {
    const own = await load({ threads: 1 }); // the collector finds tensors of other tests in `heed`
    const client = await openHere({ weights, config }, {}, own);
    const { tensors } = own.memory();
    for await (const { text } of client.generate({ ids: IDS, maxTokens: 30 })) {
      expect(text).toMatch(/^ \d+$/);
      break;
    }
    await client.run({ ids: IDS });
    expect(own.memory().tensors).toBe(tensors);
    client.dispose();
  });

  test("text of generated tokens comes when its characters are complete", async () => {
    const client = await openHere({ weights, config, tokenizer });
    const ids: number[] = [];
    let text = "";
    for await (const token of client.generate({
      ids: IDS,
      maxTokens: 30,
      seed: 5,
      temperature: 3,
    })) {
      ids.push(token.id);
      text += token.text;
      expect(text.replaceAll("\ufffd", "").length).toBeLessThanOrEqual(ids.length);
    }
    const decoded = await client.decode(ids);
    expect(decoded.replaceAll("\ufffd", "").startsWith(text.replaceAll("\ufffd", ""))).toBe(true);
    expect(text.length).toBeGreaterThan(10);
    client.dispose();
  });

  test("reject after dispose", async () => {
    const client = await openHere({ weights, config });
    const waiting = expectModelError("disposed", [], () => client.run({ ids: IDS }));
    client.dispose();
    client.dispose();
    await waiting;
    await expectModelError("disposed", [], () => client.decode([1]));
  });

  test("arguments are checked, and named", async () => {
    const client = await openHere({ weights, config });
    const pruned = (layer: number, head: number) => ({ ids: IDS, pruned: [{ layer, head }] });
    const bad = [
      [{ ids: [] }, "bad-request", "no tokens"],
      [{ ids: [300] }, "bad-request", "ids[0] is 300"],
      [{ ids: [1, -1] }, "bad-request", "ids[1] is -1"],
      [{ ids: [0.5] }, "bad-request", "0 to 299"],
      [{ ids: new Array(41).fill(1) }, "too-long", "40 positions"],
      [pruned(3, 0), "bad-request", "layer is 3"],
      [pruned(0, 2), "bad-request", "head is 2"],
      [{ ids: IDS, topK: 1001 }, "bad-request", "topK"],
      [{ ids: IDS, heads: [3] }, "bad-request", "layer is 3"],
      [{ ids: IDS, heads: "some" }, "bad-request", "some"],
    ] as const;
    for (const [request, code, words] of bad)
      await expectModelError(code, [words], () => client.run(request as never));
    const badGenerations = [
      [{ maxTokens: 0 }, "bad-request", "maxTokens is 0"],
      [{ maxTokens: 38 }, "too-long", "41 tokens"],
      [{ maxTokens: 1, temperature: -1 }, "bad-request", "temperature is -1"],
      [{ maxTokens: 1, temperature: Number.NaN }, "bad-request", "temperature is NaN"],
      [{ maxTokens: 1, topK: 0 }, "bad-request", "topK is 0"],
      [{ maxTokens: 1, seed: 0.5 }, "bad-request", "seed"],
    ] as const;
    for (const [request, code, words] of badGenerations)
      await expectModelError(code, [words], () => client.generate({ ids: IDS, ...request }).next());
    expect(await client.run({ ids: IDS.slice(0, 1), topK: 0 })).toMatchObject({ len: 1, topK: 0 });
    client.dispose();
  });

  test("without a tokenizer tokens are written as numbers", async () => {
    const client = await openHere({ weights, config });
    const { ids, pieces } = await client.encode(" 12, 0 299\n7");
    expect(ids).toEqual([12, 0, 299, 7]);
    expect(pieces.map(({ text }) => text)).toEqual(["12, ", "0 ", "299\n", "7"]);
    expect(await client.decode(ids)).toBe("12 0 299 7");
    expect(await client.pieces(ids)).toMatchObject([
      { start: 0, end: 3 },
      { id: 0 },
      {},
      { end: 10 },
    ]);
    expect((await client.encode("  ")).ids).toEqual([]);
    await expectModelError("missing", ["tokenizer.json", "“no”"], () => client.encode("1 no"));
    await expectModelError("bad-request", ["300"], () => client.encode("1 300"));
    client.dispose();
  });

  test("weights of heads beyond 512 MB are refused", async () => {
    const long = safetensors(tensorsOf(gpt2Numbers({ ...SIZES, positions: 8000 })));
    const client = await openHere({ weights: long, config });
    const ids = new Array(8000).fill(1);
    await expectModelError("too-long", ["3 layers", "fewer"], () =>
      client.run({ ids, heads: "all" }),
    );
    client.dispose();
  });

  test("a model whose predictions overflow is told so", async () => {
    const numbers = gpt2Numbers(SIZES);
    numbers.get("ln_f.weight")?.data.fill(3e38);
    const file = safetensors(tensorsOf(numbers));
    const client = await openHere({ weights: file, config });
    await expectModelError("bad-weights", ["after token 1"], () => client.run({ ids: IDS }));
    client.dispose();
  });
});

describe("where weights lie", () => {
  const entry = (dtype: string, count: number): TensorEntry => {
    const bytes = count * (dtype === "F32" ? 4 : 2);
    return { name: "w", dtype, shape: [count, 1], begin: 0, end: bytes };
  };
  test.each([
    ["F32", 10e6, { resident: true }],
    ["BF16", 60e6, { resident: true }],
    ["F32", 124e6, { resident: true }],
    ["BF16", 124e6, { resident: true }],
    ["BF16", 200e6, { resident: false }],
    ["F32", 600e6, { resident: false }],
    ["F16", 1500e6, { resident: false }],
  ] as const)("%s, %d numbers", (dtype, count, wanted) => {
    expect(placementOf([entry(dtype, count)])).toMatchObject({ ...wanted, numParameters: count });
  });

  test("more than a tab can hold is refused", async () => {
    await expectModelError("memory", ["4.2 GB", "4 GB"], async () =>
      placementOf([entry("F16", 1500e6), entry("F16", 600e6)]),
    );
  });

  test("one thread has them where threads may share too little", async () => {
    const small = await load({ threads: 2 });
    vi.spyOn(small, "tensor").mockImplementation(() => {
      throw new HeedError("memory", "data: the WebAssembly memory has no room");
    });
    const asked: unknown[] = [];
    const give = async ({ threads }: { threads: "auto" | 1 }) => {
      asked.push(threads);
      return threads === 1 ? heed : small;
    };
    const client = await openModel({ weights, config }, {}, () => localPort(give));
    expect(asked).toEqual(["auto", 1]);
    expect(small.memory().heapBytes).toBe(0);
    const wanted = await openHere({ weights, config });
    const { logits } = await wanted.run({ ids: IDS });
    expect((await client.run({ ids: IDS })).logits).toEqual(logits);
    wanted.dispose();
    client.dispose();
  });

  test("that no thread has room for are refused", async () => {
    const full = await load({ threads: 1 });
    vi.spyOn(full, "tensor").mockImplementation(() => {
      throw new HeedError("memory", "data: the WebAssembly memory has no room");
    });
    await expectModelError("memory", ["no room for the weights"], () =>
      openHere({ weights, config }, {}, full),
    );
    full.dispose();
  });

  test("stored matrices give what resident ones give, block by block", () => {
    const [rows, columns, len] = [2100, 2048, 3];
    const numbers = randomData([rows, columns], 3);
    numbers.data.forEach((x, at) => {
      numbers.data[at] = asFloat16(x);
    });
    const { bytes } = float16([rows, columns], numbers.data);
    const resident = new ResidentMatrix(heed, heed.tensor(numbers.data, [rows, columns]));
    const bits = new Uint16Array(bytes.buffer, bytes.byteOffset, rows * columns);
    for (const stored of [
      new StoredMatrix(heed, "F16", bits, rows, columns),
      new StoredMatrix(heed, "F32", numbers.data, rows, columns),
    ]) {
      const [wide, tall] = [randomData([len, columns], 4), randomData([len, rows], 5)];
      expect(stored.timesTransposed(wide.data, len)).toEqual(
        resident.timesTransposed(wide.data, len),
      );
      expect(stored.times(tall.data, len)).toEqual(resident.times(tall.data, len));
      expect(stored.gather([2099, 0, 7])).toEqual(resident.gather([2099, 0, 7]));
    }
    resident.dispose();
  });
});

test("messages are said inside each other, and names are cut", () => {
  expect(inEnglish(t`It is ${t`a name of ${3} letters`}, at letter ${5}.`)).toBe(
    "It is a name of 3 letters, at letter 5.",
  );
  expect(shown("x".repeat(1e6))).toBe(`${"x".repeat(80)}…`);
  expect(shown("a\u0000b\u202ec\nd")).toBe("a b c d");
});
