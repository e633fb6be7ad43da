// Small language models with random weights in the formats that the site opens.
import { random, size } from "./support.js";

export interface Stored {
  dtype: string;
  shape: number[];
  bytes: Uint8Array;
}

export type Tensors = Map<string, Stored>;

const bytesOf = (view: ArrayBufferView): Uint8Array =>
  new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

export const float32 = (shape: number[], data: ArrayLike<number>): Stored => ({
  dtype: "F32",
  shape,
  bytes: bytesOf(Float32Array.from(data)),
});

/** The upper halves of float32 numbers: exact where `data` has been through `asBFloat16`. */
export const bfloat16 = (shape: number[], data: ArrayLike<number>): Stored => ({
  dtype: "BF16",
  shape,
  bytes: bytesOf(
    Uint16Array.from(new Uint32Array(Float32Array.from(data).buffer), (x) => x >>> 16),
  ),
});

/** float16 of numbers that are multiples of 2^-10 below 2: those of `asFloat16`. */
export const float16 = (shape: number[], data: ArrayLike<number>): Stored => ({
  dtype: "F16",
  shape,
  bytes: bytesOf(Uint16Array.from(data, halfBits)),
});

function halfBits(x: number): number {
  const sign = x < 0 ? 0x8000 : 0;
  const magnitude = Math.abs(x);
  if (magnitude < 2 ** -14) return sign | Math.round(magnitude * 2 ** 24);
  const exponent = Math.floor(Math.log2(magnitude));
  return sign | ((exponent + 14) * 1024 + Math.round(magnitude * 2 ** (10 - exponent)));
}

export const asBFloat16 = (x: number): number =>
  new Float32Array(
    Uint32Array.of((new Uint32Array(Float32Array.of(x).buffer)[0] as number) & 0xffff0000).buffer,
  )[0] as number;

export const asFloat16 = (x: number): number => Math.round(x * 1024) / 1024 || 0;

/** The file of tensors, in their order. */
export function safetensors(tensors: Tensors, metadata?: Record<string, string>): Blob {
  let end = 0;
  const header: Record<string, unknown> = metadata ? { __metadata__: metadata } : {};
  for (const [name, { dtype, shape, bytes }] of tensors) {
    const begin = end;
    end += bytes.length;
    header[name] = { dtype, shape, data_offsets: [begin, end] };
  }
  return fileOf(
    JSON.stringify(header),
    [...tensors.values()].map(({ bytes }) => bytes),
  );
}

/** A file with this header, whatever it says, and these data. */
export function fileOf(header: string | Uint8Array, data: readonly Uint8Array[] = []): Blob {
  const bytes = typeof header === "string" ? new TextEncoder().encode(header) : header;
  const length = new DataView(new ArrayBuffer(8));
  length.setBigUint64(0, BigInt(bytes.length), true);
  return new Blob([length.buffer, bytes, ...data] as BlobPart[]);
}

export interface Sizes {
  layers: number;
  heads: number;
  kvHeads: number;
  headDim: number;
  embed: number;
  hidden: number;
  vocab: number;
  positions: number;
}

export type Numbers = Map<string, { shape: number[]; data: Float32Array }>;

class Maker {
  readonly numbers: Numbers = new Map();
  private seed: number;

  constructor(
    seed: number,
    private readonly round: (x: number) => number,
  ) {
    this.seed = seed;
  }

  add(name: string, shape: number[], spread: number, middle = 0): void {
    const next = random(this.seed++);
    const data = Float32Array.from({ length: size(shape) }, () =>
      this.round(middle + spread * next()),
    );
    this.numbers.set(name, { shape, data });
  }
}

/** GPT-2 by the names of Hugging Face. */
export function gpt2Numbers(s: Sizes, seed = 1, round = (x: number) => x): Numbers {
  const maker = new Maker(seed, round);
  const pair = (name: string, rows: number, columns: number) => {
    maker.add(`${name}.weight`, [rows, columns], 2 / Math.sqrt(rows));
    maker.add(`${name}.bias`, [columns], 0.2);
  };
  const norm = (name: string) => {
    maker.add(`${name}.weight`, [s.embed], 0.3, 1);
    maker.add(`${name}.bias`, [s.embed], 0.2);
  };
  maker.add("wte.weight", [s.vocab, s.embed], 1);
  maker.add("wpe.weight", [s.positions, s.embed], 0.5);
  for (let layer = 0; layer < s.layers; layer++) {
    norm(`h.${layer}.ln_1`);
    pair(`h.${layer}.attn.c_attn`, s.embed, 3 * s.embed);
    pair(`h.${layer}.attn.c_proj`, s.embed, s.embed);
    norm(`h.${layer}.ln_2`);
    pair(`h.${layer}.mlp.c_fc`, s.embed, s.hidden);
    pair(`h.${layer}.mlp.c_proj`, s.hidden, s.embed);
  }
  norm("ln_f");
  return maker.numbers;
}

export interface LlamaChoices {
  biases?: boolean;
  tied?: boolean;
}

/** Llama by the names of Hugging Face. */
export function llamaNumbers(
  s: Sizes,
  { biases = false, tied = false }: LlamaChoices = {},
  seed = 1,
  round = (x: number) => x,
): Numbers {
  const maker = new Maker(seed, round);
  const linear = (name: string, rows: number, columns: number, bias = false) => {
    maker.add(`${name}.weight`, [rows, columns], 2 / Math.sqrt(columns));
    if (bias) maker.add(`${name}.bias`, [rows], 0.3);
  };
  maker.add("model.embed_tokens.weight", [s.vocab, s.embed], 1);
  for (let layer = 0; layer < s.layers; layer++) {
    const stem = `model.layers.${layer}`;
    maker.add(`${stem}.input_layernorm.weight`, [s.embed], 0.3, 1);
    linear(`${stem}.self_attn.q_proj`, s.heads * s.headDim, s.embed, biases);
    linear(`${stem}.self_attn.k_proj`, s.kvHeads * s.headDim, s.embed, biases);
    linear(`${stem}.self_attn.v_proj`, s.kvHeads * s.headDim, s.embed, biases);
    linear(`${stem}.self_attn.o_proj`, s.embed, s.heads * s.headDim);
    maker.add(`${stem}.post_attention_layernorm.weight`, [s.embed], 0.3, 1);
    linear(`${stem}.mlp.gate_proj`, s.hidden, s.embed);
    linear(`${stem}.mlp.up_proj`, s.hidden, s.embed);
    linear(`${stem}.mlp.down_proj`, s.embed, s.hidden);
  }
  maker.add("model.norm.weight", [s.embed], 0.3, 1);
  if (!tied) linear("lm_head", s.vocab, s.embed);
  return maker.numbers;
}

export function tensorsOf(
  numbers: Numbers,
  store: (shape: number[], data: ArrayLike<number>) => Stored = float32,
  rename: (name: string) => string = (name) => name,
): Tensors {
  return new Map([...numbers].map(([name, { shape, data }]) => [rename(name), store(shape, data)]));
}

export const jsonBlob = (value: unknown): Blob => new Blob([JSON.stringify(value)]);
