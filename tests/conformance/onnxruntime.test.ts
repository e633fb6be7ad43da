// onnxruntime-web as an independent oracle: its operators and heed on the same random problems.
//
// Its words differ. GroupQueryAttention is always causal, counts the query itself in its window, and
// takes the number of keys minus one. A float mask of MultiHeadAttention is added. Rows that see no
// key, unequal lengths with `unidirectional` and padded prompts are left out: there it returns
// averages, unmasked rows or garbage.
import { type Heed, load } from "heed";
import * as ort from "onnxruntime-web";
import { beforeAll, describe, expect, it } from "vitest";
import { type Node, oneNodeModel } from "../../web_bench/onnx_model.js";

const SEED = Number(process.env.HEED_SEED ?? 20260);
const CASES = 40;
/** Both sides compute in float32; numbers are below 1 and logits below 16. */
const BOUND = 5e-6;

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "error";
});

/** Seeded random numbers (mulberry32). */
class Draw {
  #state: number;
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }
  uniform(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 15), z | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
  }
  whole(low: number, high: number): number {
    return low + Math.floor(this.uniform() * (high - low + 1));
  }
  chance(probability: number): boolean {
    return this.uniform() < probability;
  }
  floats(shape: number[], size = 1): Floats {
    const length = shape.reduce((a, b) => a * b, 1);
    const data = Float32Array.from({ length }, () => (2 * this.uniform() - 1) * size);
    return { data, shape };
  }
}

interface Floats {
  data: Float32Array;
  shape: number[];
}

type Feed = { name: string; tensor: ort.Tensor | undefined };

const float32 = (name: string, value: Floats | undefined): Feed => ({
  name,
  tensor: value && new ort.Tensor("float32", value.data, value.shape),
});
const int32 = (name: string, values: number[], shape: number[]): Feed => ({
  name,
  tensor: new ort.Tensor("int32", Int32Array.from(values), shape),
});
const int64 = (name: string, values: number[], shape: number[]): Feed => ({
  name,
  tensor: new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape),
});

/** Runs one operator and returns its first output. */
async function runOperator(
  operator: Pick<Node, "op" | "domain" | "attributes" | "outputs">,
  feeds: Feed[],
): Promise<ArrayLike<number>> {
  const inputs = feeds.map(({ name, tensor }) => ({
    name: tensor === undefined ? "" : name,
    type: (tensor?.type ?? "float32") as "float32" | "int32" | "int64",
  }));
  const session = await ort.InferenceSession.create(oneNodeModel({ ...operator, inputs }, 23));
  try {
    const given = feeds.flatMap(({ name, tensor }) => (tensor ? [[name, tensor] as const] : []));
    const results = await session.run(Object.fromEntries(given));
    return results[operator.outputs[0] ?? ""]?.data as Float32Array;
  } finally {
    await session.release();
  }
}

function expectSame(got: ArrayLike<number>, wanted: ArrayLike<number>, problem: unknown): void {
  expect(got.length).toBe(wanted.length);
  for (let i = 0; i < wanted.length; i++) {
    const [mine, theirs] = [got[i] as number, wanted[i] as number];
    if (Math.abs(mine - theirs) <= BOUND) continue;
    expect.fail(`[${i}]: heed ${mine}, onnxruntime ${theirs}; ${JSON.stringify(problem)}`);
  }
}

/** Runs `check` on CASES problems; the seed of a failing one is in its message. */
function forEachProblem(check: (draw: Draw, index: number) => Promise<void>): () => Promise<void> {
  return async () => {
    for (let index = 0; index < CASES; index++) {
      try {
        await check(new Draw(SEED + index), index);
      } catch (error) {
        throw new Error(`HEED_SEED=${SEED + index}: ${(error as Error).message}`, { cause: error });
      }
    }
  };
}

/** Past keys (or values), [batch, heads, past, dim], followed by new ones, [batch, len, heads, dim]. */
function appendTo(past: Floats, now: Floats): Floats {
  const [batch = 0, heads = 0, pastLen = 0, dim = 0] = past.shape;
  const len = now.shape[1] ?? 0;
  const shape = [batch, heads, pastLen + len, dim];
  const data = new Float32Array(batch * heads * (pastLen + len) * dim);
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      const unit = b * heads + h;
      const to = unit * (pastLen + len) * dim;
      data.set(past.data.subarray(unit * pastLen * dim, (unit + 1) * pastLen * dim), to);
      for (let i = 0; i < len; i++) {
        const from = ((b * len + i) * heads + h) * dim;
        data.set(now.data.subarray(from, from + dim), to + (pastLen + i) * dim);
      }
    }
  }
  return { data, shape };
}

/** [batch, len, heads, dim] from [batch, heads, len, dim]. */
function toBlhd(
  data: ArrayLike<number>,
  [batch = 0, heads = 0, len = 0, dim = 0]: readonly number[],
) {
  const out = new Float32Array(data.length);
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++)
      for (let i = 0; i < len; i++)
        for (let d = 0; d < dim; d++)
          out[((b * len + i) * heads + h) * dim + d] = data[
            ((b * heads + h) * len + i) * dim + d
          ] as number;
  return out;
}

const flat = ({ data, shape }: Floats): Floats => {
  const [batch = 0, len = 0, heads = 0, dim = 0] = shape;
  return { data, shape: [batch, len, heads * dim] };
};

const asHeads = ({ data, shape }: Floats): Floats => {
  const [batch = 0, , heads = 0, dim = 0] = shape;
  return appendTo({ data: new Float32Array(0), shape: [batch, heads, 0, dim] }, { data, shape });
};

function tables(draw: Draw, rows: number, pairs: number): { cos: Floats; sin: Floats } {
  const cos = draw.floats([rows, pairs], Math.PI);
  const sin = { data: cos.data.map(Math.sin), shape: cos.shape };
  return { cos: { data: cos.data.map(Math.cos), shape: cos.shape }, sin };
}

describe("onnxruntime agrees", () => {
  it(
    "on GroupQueryAttention: groups, past, windows, sinks, softcap, scale, rotary",
    forEachProblem(async (draw) => {
      const batch = draw.whole(1, 3);
      const kvHeads = draw.whole(1, 3);
      const heads = kvHeads * draw.whole(1, 3);
      const turns = draw.chance(0.5);
      // Its rotation wants multiples of 16.
      const dim = turns ? 16 * draw.whole(1, 3) : 8 * draw.whole(1, 5);
      const pastLen = draw.chance(0.5) ? draw.whole(1, 20) : 0;
      // A prompt behind a past is not an operator case of every version; one token always is.
      const len = pastLen > 0 ? 1 : draw.whole(1, 40);
      const q = draw.floats([batch, len, heads, dim]);
      const k = draw.floats([batch, len, kvHeads, dim]);
      const v = draw.floats([batch, len, kvHeads, dim]);
      const past = {
        k: draw.floats([batch, kvHeads, pastLen, dim]),
        v: draw.floats([batch, kvHeads, pastLen, dim]),
      };
      const window = draw.chance(0.4) ? draw.whole(1, 12) : undefined;
      const softcap = draw.chance(0.3) ? draw.whole(1, 20) : undefined;
      const scale = draw.chance(0.3) ? 0.1 + draw.uniform() : undefined;
      const sinks = draw.chance(0.4) ? draw.floats([heads], 3) : undefined;
      const smooth = sinks === undefined && draw.chance(0.2);
      const rotary = turns ? tables(draw, 64, dim / 2) : undefined;
      const interleaved = draw.chance(0.5);
      const attributes = {
        num_heads: heads,
        kv_num_heads: kvHeads,
        scale,
        softcap,
        local_window_size: window,
        smooth_softmax: smooth ? 1 : undefined,
        do_rotary: rotary ? 1 : undefined,
        rotary_interleaved: rotary && interleaved ? 1 : undefined,
      };
      const theirs = await runOperator(
        {
          op: "GroupQueryAttention",
          domain: "com.microsoft",
          attributes,
          outputs: ["o", "pk", "pv"],
        },
        [
          float32("query", flat(q)),
          float32("key", flat(k)),
          float32("value", flat(v)),
          float32("past_key", pastLen > 0 ? past.k : undefined),
          float32("past_value", pastLen > 0 ? past.v : undefined),
          int32("seqlens_k", Array<number>(batch).fill(pastLen + len - 1), [batch]),
          int32("total_sequence_length", [pastLen + len], []),
          float32("cos_cache", rotary?.cos),
          float32("sin_cache", rotary?.sin),
          { name: "position_ids", tensor: undefined },
          { name: "attention_bias", tensor: undefined },
          float32("head_sink", sinks),
        ],
      );
      const turn = (x: Floats): Floats => {
        if (rotary === undefined) return x;
        const options = { pairing: interleaved ? "interleaved" : "half", layout: "blhd" } as const;
        const { data } = heed.rope(x, { ...options, ...rotary, offset: pastLen });
        return { data: Float32Array.from(data as Float32Array), shape: x.shape };
      };
      const zeroSinks = { data: new Float32Array(heads), shape: [heads] };
      const { output } = heed.attention(
        asHeads(turn(q)),
        appendTo(past.k, turn(k)),
        appendTo(past.v, v),
        {
          causal: true,
          queryOffset: pastLen,
          scale,
          softcap,
          // Their window counts the query itself.
          window: window === undefined ? undefined : heed.lastN(window),
          sinks: smooth ? zeroSinks : sinks,
        },
      );
      const problem = { batch, heads, kvHeads, dim, pastLen, len, window, softcap, scale, smooth };
      expectSame(toBlhd(output.data, output.shape), theirs, {
        ...problem,
        sinks: sinks !== undefined,
        rotary: rotary !== undefined,
        interleaved,
      });
    }),
  );

  it(
    "on MultiHeadAttention: cross attention, bias, key lengths, causal",
    forEachProblem(async (draw) => {
      const [batch, heads, dim] = [draw.whole(1, 3), draw.whole(1, 4), draw.whole(1, 40)];
      const causal = draw.chance(0.3);
      const qLen = draw.whole(1, 30);
      const kvLen = causal ? qLen : draw.whole(1, 50);
      const dimV = draw.chance(0.3) ? draw.whole(1, 24) : dim;
      const q = draw.floats([batch, qLen, heads, dim]);
      const k = draw.floats([batch, kvLen, heads, dim]);
      const v = draw.floats([batch, kvLen, heads, dimV]);
      const bias = draw.chance(0.5)
        ? draw.floats([draw.chance(0.5) ? batch : 1, heads, qLen, kvLen], 4)
        : undefined;
      const scale = draw.chance(0.4) ? 0.05 + draw.uniform() : undefined;
      const lengths = draw.chance(0.4)
        ? Array.from({ length: batch }, () => draw.whole(1, kvLen))
        : undefined;
      const attributes = {
        num_heads: heads,
        scale,
        unidirectional: causal ? 1 : undefined,
      };
      const theirs = await runOperator(
        { op: "MultiHeadAttention", domain: "com.microsoft", attributes, outputs: ["o"] },
        [
          float32("query", flat(q)),
          float32("key", flat(k)),
          float32("value", flat(v)),
          { name: "bias", tensor: undefined },
          lengths === undefined
            ? { name: "key_padding_mask", tensor: undefined }
            : int32("key_padding_mask", lengths, [batch]),
          float32("attention_bias", bias),
        ],
      );
      const options = { bias, scale, causal, keyLengths: lengths };
      const { output } = heed.attention(asHeads(q), asHeads(k), asHeads(v), options);
      const problem = {
        batch,
        heads,
        dim,
        dimV,
        qLen,
        kvLen,
        causal,
        scale,
        lengths,
        bias: bias?.shape,
      };
      expectSame(toBlhd(output.data, output.shape), theirs, problem);
    }),
  );

  it(
    "on Attention of ONNX 23: groups, masks, softcap, causal",
    forEachProblem(async (draw) => {
      const batch = draw.whole(1, 2);
      const kvHeads = draw.whole(1, 3);
      const heads = kvHeads * draw.whole(1, 3);
      const [dim, dimV] = [draw.whole(1, 40), draw.whole(1, 40)];
      const [qLen, kvLen] = [draw.whole(1, 30), draw.whole(1, 50)];
      const q = draw.floats([batch, heads, qLen, dim]);
      const k = draw.floats([batch, kvHeads, kvLen, dim]);
      const v = draw.floats([batch, kvHeads, kvLen, dimV]);
      const bias = draw.chance(0.5) ? draw.floats([qLen, kvLen], 3) : undefined;
      const softcap = draw.chance(0.3) ? draw.whole(1, 10) : undefined;
      const causal = draw.chance(0.5);
      const theirs = await runOperator(
        {
          op: "Attention",
          domain: "",
          attributes: { softcap, is_causal: causal ? 1 : undefined },
          outputs: ["Y"],
        },
        [float32("Q", q), float32("K", k), float32("V", v), float32("attn_mask", bias)],
      );
      const options = { causal, queryOffset: 0, softcap, bias };
      const { output } = heed.attention(q, k, v, options);
      const problem = { batch, heads, kvHeads, dim, dimV, qLen, kvLen, causal, softcap };
      expectSame(output.data, theirs, problem);
    }),
  );

  it(
    "on RotaryEmbedding: both pairings, partial, positions",
    forEachProblem(async (draw) => {
      const [batch, heads, len] = [draw.whole(1, 3), draw.whole(1, 4), draw.whole(1, 30)];
      const dim = 16 * draw.whole(1, 4);
      const partial = draw.chance(0.5) ? 8 * draw.whole(1, dim / 8) : 0;
      const { cos, sin } = tables(draw, 64, (partial || dim) / 2);
      const interleaved = draw.chance(0.5);
      const x = draw.floats([batch, heads, len, dim]);
      const positions = Array.from({ length: batch * len }, () => draw.whole(0, 63));
      const attributes = {
        interleaved: interleaved ? 1 : undefined,
        rotary_embedding_dim: partial || undefined,
        num_heads: partial ? heads : undefined,
      };
      const theirs = await runOperator(
        { op: "RotaryEmbedding", domain: "", attributes, outputs: ["y"] },
        [
          float32("x", x),
          float32("cos", cos),
          float32("sin", sin),
          int64("position_ids", positions, [batch, len]),
        ],
      );
      const output = heed.rope(x, {
        pairing: interleaved ? "interleaved" : "half",
        rotaryDim: partial || undefined,
        cos,
        sin,
        positions: { data: Int32Array.from(positions), shape: [batch, len] },
      });
      expectSame(output.data, theirs, { batch, heads, len, dim, partial, interleaved });
    }),
  );
});
