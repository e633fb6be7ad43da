// GPT-2 and Llama in float64, in plain loops that share no code with the site or with heed.
import type { Numbers, Sizes } from "./model_files.js";

type Rows = number[][];

export interface Reference {
  logits: Rows;
  /** [layer][head][query][key] */
  weights: number[][][][];
}

export interface Choices {
  epsilon: number;
  pruned?: { layer: number; head: number }[];
  ropeBase?: number;
  /** Of the frequencies, after the base. */
  rescale?: (frequency: number) => number;
  window?: number;
}

const dot = (a: ArrayLike<number>, b: ArrayLike<number>): number => {
  let sum = 0;
  for (let n = 0; n < a.length; n++) sum += (a[n] as number) * (b[n] as number);
  return sum;
};

class Reader {
  constructor(private readonly numbers: Numbers) {}

  has(name: string): boolean {
    return this.numbers.has(name);
  }

  vector(name: string): number[] {
    return [...(this.numbers.get(name)?.data ?? [])];
  }

  rows(name: string): Rows {
    const { shape, data } = this.numbers.get(name) as { shape: number[]; data: Float32Array };
    const columns = shape[1] as number;
    return Array.from({ length: shape[0] as number }, (_, row) => [
      ...data.subarray(row * columns, (row + 1) * columns),
    ]);
  }

  columns(name: string): Rows {
    const rows = this.rows(name);
    return (rows[0] as number[]).map((_, column) => rows.map((row) => row[column] as number));
  }

  /** x W + b, or x W^T + b with `stem` of a Linear. */
  apply(stem: string, x: number[], transposed: boolean): number[] {
    const weight = transposed ? this.rows(`${stem}.weight`) : this.columns(`${stem}.weight`);
    const bias = this.vector(`${stem}.bias`);
    return weight.map((row, at) => dot(row, x) + (bias[at] ?? 0));
  }
}

function attend(q: Rows, k: Rows, v: Rows, s: Sizes, layer: number, choices: Choices) {
  const weights: number[][][] = [];
  const output = q.map(() => new Array<number>(s.heads * s.headDim).fill(0));
  for (let head = 0; head < s.heads; head++) {
    const own = head * s.headDim;
    const shared = Math.floor(head / (s.heads / s.kvHeads)) * s.headDim;
    const part = (row: number[] | undefined, at: number) => (row ?? []).slice(at, at + s.headDim);
    const rows = q.map((query, i) => {
      const scores = k.map((key, j) => {
        const isSeen = j <= i && i - j < (choices.window ?? Infinity);
        return isSeen ? dot(part(query, own), part(key, shared)) / Math.sqrt(s.headDim) : -Infinity;
      });
      const top = Math.max(...scores);
      const exps = scores.map((score) => Math.exp(score - top));
      const sum = exps.reduce((a, b) => a + b, 0);
      return exps.map((exp) => exp / sum);
    });
    weights.push(rows);
    if (choices.pruned?.some((one) => one.layer === layer && one.head === head)) continue;
    rows.forEach((row, i) => {
      for (let d = 0; d < s.headDim; d++)
        (output[i] as number[])[own + d] = dot(
          row,
          v.map((value) => value[shared + d] as number),
        );
    });
  }
  return { output, weights };
}

const plus = (a: number[], b: number[]): number[] => a.map((x, at) => x + (b[at] as number));

export function gpt2Reference(
  numbers: Numbers,
  s: Sizes,
  ids: number[],
  choices: Choices,
): Reference {
  const read = new Reader(numbers);
  const norm = (name: string, x: number[]) => {
    const mean = x.reduce((a, b) => a + b, 0) / x.length;
    const centred = x.map((value) => value - mean);
    const deviation = Math.sqrt(dot(centred, centred) / x.length + choices.epsilon);
    const [scale, bias] = [read.vector(`${name}.weight`), read.vector(`${name}.bias`)];
    return centred.map(
      (value, at) => (value / deviation) * (scale[at] as number) + (bias[at] as number),
    );
  };
  const gelu = (x: number) =>
    0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
  const [wte, wpe] = [read.rows("wte.weight"), read.rows("wpe.weight")];
  let x = ids.map((id, at) => plus(wte[id] as number[], wpe[at] as number[]));
  const weights: number[][][][] = [];
  for (let layer = 0; layer < s.layers; layer++) {
    const stem = `h.${layer}`;
    const all = x.map((row) => read.apply(`${stem}.attn.c_attn`, norm(`${stem}.ln_1`, row), false));
    const third = (n: number) => all.map((row) => row.slice(n * s.embed, (n + 1) * s.embed));
    const attended = attend(third(0), third(1), third(2), s, layer, choices);
    weights.push(attended.weights);
    x = x.map((row, at) =>
      plus(row, read.apply(`${stem}.attn.c_proj`, attended.output[at] as number[], false)),
    );
    x = x.map((row) => {
      const hidden = read.apply(`${stem}.mlp.c_fc`, norm(`${stem}.ln_2`, row), false).map(gelu);
      return plus(row, read.apply(`${stem}.mlp.c_proj`, hidden, false));
    });
  }
  const head = read.has("lm_head.weight") ? read.rows("lm_head.weight") : wte;
  return { logits: x.map((row) => head.map((token) => dot(token, norm("ln_f", row)))), weights };
}

/** Halves of a head turn together. */
function rotate(rows: Rows, heads: number, dim: number, choices: Choices): Rows {
  const half = dim / 2;
  return rows.map((row, position) => {
    const turned = [...row];
    for (let head = 0; head < heads; head++)
      for (let t = 0; t < half; t++) {
        const plain = (choices.ropeBase ?? 10_000) ** ((-2 * t) / dim);
        const angle = position * (choices.rescale?.(plain) ?? plain);
        const [a, b] = [row[head * dim + t] as number, row[head * dim + t + half] as number];
        turned[head * dim + t] = a * Math.cos(angle) - b * Math.sin(angle);
        turned[head * dim + t + half] = b * Math.cos(angle) + a * Math.sin(angle);
      }
    return turned;
  });
}

export function llamaReference(
  numbers: Numbers,
  s: Sizes,
  ids: number[],
  choices: Choices,
): Reference {
  const read = new Reader(numbers);
  const norm = (name: string, x: number[]) => {
    const size = Math.sqrt(dot(x, x) / x.length + choices.epsilon);
    const scale = read.vector(`${name}.weight`);
    return x.map((value, at) => (value / size) * (scale[at] as number));
  };
  const silu = (x: number) => x / (1 + Math.exp(-x));
  const embedding = read.rows("model.embed_tokens.weight");
  let x = ids.map((id) => embedding[id] as number[]);
  const weights: number[][][][] = [];
  for (let layer = 0; layer < s.layers; layer++) {
    const stem = `model.layers.${layer}`;
    const rows = x.map((row) => norm(`${stem}.input_layernorm`, row));
    const projected = (name: string) =>
      rows.map((row) => read.apply(`${stem}.self_attn.${name}_proj`, row, true));
    const q = rotate(projected("q"), s.heads, s.headDim, choices);
    const k = rotate(projected("k"), s.kvHeads, s.headDim, choices);
    const attended = attend(q, k, projected("v"), s, layer, choices);
    weights.push(attended.weights);
    x = x.map((row, at) =>
      plus(row, read.apply(`${stem}.self_attn.o_proj`, attended.output[at] as number[], true)),
    );
    x = x.map((row) => {
      const inner = norm(`${stem}.post_attention_layernorm`, row);
      const up = read.apply(`${stem}.mlp.up_proj`, inner, true);
      const hidden = read
        .apply(`${stem}.mlp.gate_proj`, inner, true)
        .map((value, at) => silu(value) * (up[at] as number));
      return plus(row, read.apply(`${stem}.mlp.down_proj`, hidden, true));
    });
  }
  const head = read.has("lm_head.weight") ? read.rows("lm_head.weight") : embedding;
  return {
    logits: x.map((row) => head.map((token) => dot(token, norm("model.norm", row)))),
    weights,
  };
}
