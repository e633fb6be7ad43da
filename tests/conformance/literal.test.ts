import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Heed, load } from "heed";
import { afterAll, beforeAll, expect, it } from "vitest";
import { Tally } from "./tally.js";

type Nested = number | Nested[];
interface Fixture {
  name: string;
  source: string;
  tol: number;
  inputs: Record<string, never>;
  expected: Record<string, Nested>;
}

const repository = fileURLToPath(new URL("../..", import.meta.url));
const data = process.env.HEED_CONFORMANCE ?? `${repository}../shared/conformance`;
const file = `${data}/literal_fixtures.json`;

let heed: Heed;
const tally = new Tally("literal");

const flat = (value: Nested | undefined): number[] =>
  value === undefined ? [] : Array.isArray(value) ? value.flatMap(flat) : [value];

function expectNear(got: ArrayLike<number>, wanted: Nested | undefined, tolerance: number): void {
  const numbers = flat(wanted);
  expect(got.length).toBe(numbers.length);
  // The fixtures' tolerances assume numbers near 1; float32 carries 2^-23 of each.
  numbers.forEach((value, i) => {
    expect(Math.abs((got[i] as number) - value)).toBeLessThanOrEqual(
      tolerance + 2 ** -23 * Math.abs(value),
    );
  });
}

/** Raw scores of dot products; the values do not matter. */
function rawScores(q: number[][][], k: number[][][], scale: number): ArrayLike<number> {
  return heed.attention(q, k, k, { scale, returnScores: "raw" }).scores.data;
}

const ones = (shape: number[]) => ({
  data: new Float32Array(shape.reduce((a, b) => a * b, 1)).fill(1),
  shape,
});

const asRows = (vectors: number[][]): number[][][] => vectors.map((vector) => [vector]);

const transpose = (rows: number[][]): number[][] =>
  (rows[0] ?? []).map((_, column) => rows.map((row) => row[column] ?? 0));

/** Vectors with a last element of 1. */
const withOne = (batch: number[][][]): number[][][] =>
  batch.map((rows) => rows.map((row) => [...row, 1]));

function expectAdditive(
  inputs: Record<string, never>,
  expected: Record<string, Nested>,
  tol: number,
): void {
  const { query, key, value } = inputs;
  const { output, weights } = heed.attention(query, key, value, {
    score: "additive",
    returnWeights: true,
  });
  expectNear(output.data, expected.output, tol);
  expectNear(weights.data, expected.weights, tol);
}

/** q W k + b: the constant is a bias. */
function bilinearScores(
  q: number[][][],
  k: number[][][],
  { W, b }: Record<string, never>,
): ArrayLike<number> {
  const bias = { data: Float32Array.from([b]), shape: [1, 1, 1, 1] };
  const options = { score: "bilinear", scoreMatrix: W, bias, returnScores: "biased" } as const;
  return heed.attention(q, k, k, options).scores.data;
}

const cosineScores = (q: number[][][], k: number[][][]): ArrayLike<number> =>
  heed.attention(q, k, k, { score: "cosine", returnScores: "raw" }).scores.data;

/** w.[q; k] + b, or w.[q; k; q * k] + b, of vectors with a last 1, as one matrix between them. */
function linearScore(w: number[], b: number, dim: number) {
  const part = (n: number, d: number): number => w[n * dim + d] ?? 0;
  const scoreMatrix = Array.from({ length: dim + 1 }, (_, i) =>
    Array.from({ length: dim + 1 }, (_, j) => {
      if (i === dim && j === dim) return b;
      if (i === dim) return part(1, j);
      if (j === dim) return part(0, i);
      return i === j ? part(2, i) : 0;
    }),
  );
  return { score: "bilinear", scoreMatrix } as const;
}

/** What each fixture means in heed's words, by the beginning of its name. */
const MEANINGS: [string, (fixture: Fixture) => void][] = [
  [
    "keras Attention dot",
    ({ inputs, expected, tol }) => {
      const { query, key, value } = inputs;
      const { output, weights } = heed.attention(query, key, value, {
        scale: 1,
        returnWeights: true,
      });
      expectNear(output.data, expected.output, tol);
      expectNear(weights.data, expected.weights, tol);
    },
  ],
  [
    "keras Attention query_mask+value_mask",
    ({ inputs, expected, tol }) => {
      const { query, value, value_mask_true_keeps: mask, query_mask_true_keeps: rows } = inputs;
      const keys = mask[0] as boolean[];
      const keep = (rows[0] as boolean[]).map((row) => keys.map((key) => row && key));
      expectNear(
        heed.attention(query, value, value, { scale: 1, keep }).output.data,
        expected.output,
        tol,
      );
      // Keras leaves the weights of a masked query; heed's weights are those of what it computes.
      const byKey = keep.map(() => keys);
      const { weights } = heed.attention(query, value, value, {
        scale: 1,
        keep: byKey,
        returnWeights: true,
      });
      expectNear(weights.data, expected.weights, tol);
    },
  ],
  [
    "keras MultiHeadAttention",
    ({ inputs, expected, tol }) => {
      const { query, key, value } = inputs;
      // Every kernel is the 8 x 8 identity, repeated along its middle axis.
      const kernel = (heads: number) => ({
        data: Float32Array.from({ length: 64 * heads }, (_, n) =>
          Math.floor(n / (8 * heads)) === n % 8 ? 1 : 0,
        ),
        shape: [8, heads, 8],
      });
      for (const numKvHeads of [8, 4]) {
        const sizes = { embedDim: 8, numHeads: 8, headDim: 8, numKvHeads, bias: false };
        const layer = new heed.MultiHeadAttention(sizes);
        layer.loadKerasWeights({
          "query/kernel": kernel(8),
          "key/kernel": kernel(numKvHeads),
          "value/kernel": kernel(numKvHeads),
          "attention_output/kernel": kernel(8),
        });
        const { output, weights } = layer.forward(query, key, value, { returnWeights: true });
        expectNear([weights.data[0] ?? 0], expected.weights_diag, tol);
        expectNear([weights.data[1] ?? 0], expected.weights_offdiag, tol);
        const rows = flat(expected.output_row_values).flatMap((row) => Array(8).fill(row));
        expectNear(output.data, rows, tol);
        layer.dispose();
      }
    },
  ],
  [
    "allennlp dot matrix",
    ({ inputs, expected, tol }) =>
      expectNear(rawScores(inputs.q, inputs.k, 1), expected.scores, tol),
  ],
  [
    "allennlp dot",
    ({ inputs, expected, tol }) =>
      expectNear(rawScores(asRows(inputs.q), inputs.k, 1), expected.scores, tol),
  ],
  [
    "allennlp scaled dot",
    ({ inputs, expected, tol }) => {
      const scale = 1 / Math.sqrt(inputs.scaling_factor);
      expectNear(rawScores(asRows(inputs.q), inputs.k, scale), expected.scores, tol);
    },
  ],
  ["keras Attention concat", ({ inputs, expected, tol }) => expectAdditive(inputs, expected, tol)],
  ["keras AdditiveAttention", ({ inputs, expected, tol }) => expectAdditive(inputs, expected, tol)],
  [
    "allennlp additive",
    ({ inputs, expected, tol }) => {
      // Their weights stand on the right: x W. heed's are [hidden_dim, head_dim].
      const { scores } = heed.attention(asRows(inputs.vectors), inputs.matrices, inputs.matrices, {
        score: "additive",
        queryWeight: transpose(inputs.W),
        keyWeight: transpose(inputs.U),
        scoreVector: (inputs.v as number[][]).flat(),
        returnScores: "raw",
      });
      expectNear(scores.data, expected.scores, tol);
    },
  ],
  [
    "allennlp bilinear matrix with input biases",
    ({ inputs, expected, tol }) =>
      expectNear(
        bilinearScores(withOne(inputs.q), withOne(inputs.k), inputs),
        expected.scores,
        tol,
      ),
  ],
  [
    "allennlp bilinear matrix",
    ({ inputs, expected, tol }) =>
      expectNear(bilinearScores(inputs.q, inputs.k, inputs), expected.scores, tol),
  ],
  [
    "allennlp bilinear / Luong general",
    ({ inputs, expected, tol }) =>
      expectNear(bilinearScores(asRows(inputs.q), inputs.k, inputs), expected.scores, tol),
  ],
  [
    "allennlp cosine matrix",
    ({ inputs, expected, tol }) =>
      expectNear(cosineScores(inputs.q, inputs.k), expected.scores, tol),
  ],
  [
    "allennlp cosine",
    ({ inputs, expected, tol }) =>
      expectNear(cosineScores(asRows(inputs.q), inputs.k), expected.scores, tol),
  ],
  [
    "allennlp linear matrix",
    ({ inputs, expected, tol }) => {
      const { q, k, w, b } = inputs;
      const { scores } = heed.attention(withOne(q), withOne(k), k, {
        ...linearScore(w, b, 3),
        returnScores: "raw",
      });
      expectNear(scores.data, expected.scores, tol);
    },
  ],
  [
    "allennlp linear concat",
    ({ inputs, expected, tol }) => {
      const { q, k, w, b } = inputs;
      const { weights } = heed.attention(withOne(asRows(q)), withOne(k), k, {
        ...linearScore(w, b, (q as number[][])[0]?.length ?? 0),
        returnWeights: true,
      });
      expectNear(weights.data, expected.weights, tol);
    },
  ],
  [
    "allennlp BiDAF",
    ({ inputs, expected, tol }) => {
      const { q, k, w, b } = inputs;
      const { scores } = heed.attention(withOne(asRows(q)), withOne(k), k, {
        ...linearScore(w, b, (q as number[][])[0]?.length ?? 0),
        returnScores: "raw",
      });
      expectNear(scores.data, expected.scores, tol);
    },
  ],
  [
    "Transformer-XL fast relative shift",
    ({ inputs, expected, tol }) => {
      // Row i of y, up to the diagonal, is the score of distance i - j; heed never makes the rest.
      const row = ((inputs.x as number[][][][])[0]?.[0]?.[0] ?? []) as number[];
      const zeros = row.map(() => [0]);
      const { scores } = heed.run(
        "transformer_xl",
        {
          q: [[row.map(() => [1])]],
          k: [[zeros]],
          v: [[zeros]],
          relativeKeys: [...row, ...row.slice(1)].map((x) => [x]),
        },
        { scale: 1, causal: true, returnScores: "biased" },
      );
      const shifted = (expected.y as number[][][][])[0]?.[0] ?? [];
      const masked = shifted.map((line, i) => line.map((x, j) => (j <= i ? x : -Infinity)));
      expect(Array.from(scores?.data ?? [])).toEqual(masked.flat());
      expect(tol).toBe(0);
    },
  ],
  [
    "ALiBi 8 heads",
    ({ expected, tol }) => {
      const alibiSlopes = heed.alibiSlopes(8);
      expectNear(alibiSlopes, expected.slopes, tol);
      const q = { data: new Float32Array(8), shape: [1, 8, 1, 1] };
      const k = { data: new Float32Array(24), shape: [1, 8, 3, 1] };
      const options = { alibiSlopes, queryOffset: "end", returnScores: "biased" } as const;
      const { scores } = heed.attention(q, k, k, options);
      expectNear(
        scores.data.filter((_, i) => i % 3 === 0),
        expected.bias_first_col,
        tol,
      );
    },
  ],
  ["ALiBi 14 heads", ({ expected, tol }) => expectNear(heed.alibiSlopes(14), expected.slopes, tol)],
  [
    "ALiBi bias_max 12",
    ({ expected, tol }) =>
      expectNear(heed.alibiSlopes(2, { maxExponent: 12 }), expected.slopes, tol),
  ],
  [
    "ALiBi bias_max 6",
    ({ expected, tol }) =>
      expectNear(heed.alibiSlopes(3, { maxExponent: 6 }), expected.slopes, tol),
  ],
  [
    "RoPE half-split, ones",
    ({ expected, tol }) => {
      const turned = heed.rope(ones([1, 4, 6]), { pairing: "half" });
      expectNear(turned.data.slice(0, 6), expected.pos0, tol);
      expectNear(turned.data.slice(18), expected.pos3, tol);
    },
  ],
  [
    "RoPE positions",
    ({ inputs, expected, tol }) => {
      // keras-hub's x is [batch, len, heads, dim]; all rows but the last one stand at position 0.
      const { x, positions } = inputs;
      const { data } = heed.rope(x, { pairing: "half", positions, layout: "blhd" });
      expectNear(data.slice(-16), expected.last_row, tol);
      expectNear(data.slice(0, -16), flat(x).slice(0, -16), 0);
    },
  ],
  [
    "RoPE linear scaling factor 2",
    ({ expected, tol }) => {
      const scaling = { type: "linear", factor: 2 } as const;
      const x = ones([1, 3, 2, 4]);
      const turned = heed.rope(x, { pairing: "half", scaling, layout: "blhd" });
      (expected.rows as number[][]).forEach((row, position) => {
        expectNear(turned.data.slice(8 * position, 8 * position + 4), row, tol);
      });
    },
  ],
  [
    "RoPE linear scaling factor 5",
    ({ expected, tol }) => {
      const scaling = { type: "linear", factor: 5 } as const;
      const turned = heed.rope(ones([1, 4]), { pairing: "half", offset: 12, scaling });
      expectNear(turned.data, expected.rows, tol);
    },
  ],
  [
    "RoPE half-split base 100",
    ({ inputs, expected, tol }) => {
      const options = { pairing: "half", offset: inputs.pos, base: inputs.max_wavelength } as const;
      expectNear(heed.rope(ones([1, inputs.dim]), options).data, expected.row, tol);
    },
  ],
  [
    "sinusoidal interleaved",
    ({ inputs, expected, tol }) => {
      const table = heed.sinusoidal(4, inputs.dim);
      expectNear(table.data.slice(0, inputs.dim), expected.pos0, tol);
      expectNear(table.data.slice(3 * inputs.dim), expected.pos3, tol);
    },
  ],
  [
    "sinusoidal concat",
    ({ inputs, expected, tol }) => {
      const params = { codeLayout: "concatenated", spacing: "closed", base: inputs.max_wavelength };
      const x = ones([1, inputs.dim]);
      const sum = heed.run("sinusoidal", { x }, { ...params, positionOffset: inputs.pos });
      expectNear(sum.output.data, expected.row, tol);
    },
  ],
];

if (existsSync(file)) {
  beforeAll(async () => {
    heed = await load({ threads: 1 });
  });
  for (const fixture of JSON.parse(readFileSync(file, "utf8")) as Fixture[]) {
    const pass = tally.announce(fixture.source.split(" ")[0] ?? "unknown");
    it(fixture.name, () => {
      const meaning = MEANINGS.find(([name]) => fixture.name.startsWith(name));
      if (meaning === undefined) throw new Error(`no call of heed stands for "${fixture.name}"`);
      meaning[1](fixture);
      pass();
    });
  }
  afterAll(() => tally.finish());
} else {
  it.skip(`has no data at ${file} (set HEED_CONFORMANCE)`, () => {});
}
