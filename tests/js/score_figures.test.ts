// What the pages of scores, positions and normalisers compute, against plain float64 loops written here.
import { type Heed, load } from "heed";
import { beforeAll, expect, test } from "vitest";
import { floats } from "../../web/src/lib/call.js";
import { COUNTED, RESTING as COUNTING, counted } from "../../web/src/mechanisms/cope/counting.js";
import { parts as disentangledParts } from "../../web/src/mechanisms/disentangled/parts.js";
import { RESTING as GATES, gateOf, gates } from "../../web/src/mechanisms/forgetting/gates.js";
import {
  KEYS,
  type Normaliser,
  PLACES,
  RESTING,
  rivalOf,
  rowOf,
  scoresIn,
  scoresText,
} from "../../web/src/mechanisms/hard/row.js";
import { tableOf } from "../../web/src/mechanisms/learned_position/table.js";
import { networkOf, UNITS, VECTOR } from "../../web/src/mechanisms/luong_concat/network.js";
import {
  ANGLES,
  angleOf,
  at,
  keyAt,
  LENGTHS,
  lengthOf,
  type Point,
  plane,
  type Score,
  SIDE,
} from "../../web/src/mechanisms/luong_dot/plane.js";
import { cellUnder, placeIn } from "../../web/src/mechanisms/luong_dot/plane_scene.js";
import { matrixOf } from "../../web/src/mechanisms/luong_general/matrix.js";
import { parts as shawParts } from "../../web/src/mechanisms/shaw_relative/parts.js";
import {
  DIM as CODE_DIM,
  code,
  POSITIONS,
  refusal,
} from "../../web/src/mechanisms/sinusoidal/code.js";
import { piecesOf } from "../../web/src/mechanisms/stick_breaking/stick.js";
import {
  RESTING as BUCKETS,
  biases,
  bucketed,
  BUCKETS as COUNTS,
  FAR,
  FARTHEST,
  stepsOf,
} from "../../web/src/mechanisms/t5_relative/buckets.js";
import {
  RESTING as PREFERENCES,
  preferences,
} from "../../web/src/mechanisms/transformer_xl/preferences.js";
import {
  COUNT,
  DIM,
  K,
  type Problem,
  Q,
  type Terms,
  terms,
  WORDS,
} from "../../web/src/mechanisms/transformer_xl/terms.js";
import { fading, DIM as XPOS_DIM } from "../../web/src/mechanisms/xpos/fading.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

const row = (all: ArrayLike<number>, at: number, width = DIM): number[] =>
  Array.from({ length: width }, (_, d) => all[at * width + d] as number);
const dot = (a: readonly number[], b: readonly number[]) =>
  a.reduce((sum, value, d) => sum + value * (b[d] as number), 0);
const content = (i: number, j: number) => dot(row(Q, i), row(K, j));
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

function softmax(scores: readonly number[]): number[] {
  const top = Math.max(...scores);
  const exps = scores.map((score) => Math.exp(score - top));
  const sum = exps.reduce((total, value) => total + value, 0);
  return exps.map((value) => value / sum);
}

const close = (found: ArrayLike<number>, wanted: readonly number[], most = 1e-5) => {
  expect(found.length).toBe(wanted.length);
  wanted.forEach((value, at) => {
    const own = found[at] as number;
    if (value === -Infinity) expect(own).toBe(value);
    else expect(Math.abs(own - value)).toBeLessThan(most * Math.max(1, Math.abs(value)));
  });
};

/** Every term, their sum and its softmax, from one function a term. */
function expectTerms(
  found: Terms,
  sees: (i: number, j: number) => boolean,
  truth: readonly ((i: number, j: number) => number)[],
) {
  expect(found.terms).toHaveLength(truth.length);
  for (let i = 0; i < COUNT; i++) {
    const keys = WORDS.map((_, j) => j);
    truth.forEach((term, at) => {
      const scores = keys.map((j) => (sees(i, j) ? term(i, j) : -Infinity));
      close(row(found.terms[at]?.scores ?? [], i, COUNT), scores);
    });
    const sums = keys.map((j) =>
      truth.reduce((sum, term) => sum + (sees(i, j) ? term(i, j) : -Infinity), 0),
    );
    close(row(found.scores, i, COUNT), sums);
    close(row(found.weights, i, COUNT), softmax(sums));
  }
}

const past = (i: number, j: number) => j <= i;
const all = () => true;
const table = ({ inputs }: Problem, name: string) => inputs[name]?.data as Float32Array;

test("transformer-xl: content and distance, of the query and of nobody", () => {
  const problem = preferences(heed, { ...PREFERENCES, distance: 3 });
  const [r, u, v] = [
    table(problem, "relativeKeys"),
    row(table(problem, "contentBias"), 0),
    row(table(problem, "positionBias"), 0),
  ];
  /** The sinusoids of a distance, from their formula. */
  const code = (distance: number) =>
    Array.from({ length: DIM }, (_, d) => {
      const angle = distance / 100 ** ((2 * Math.floor(d / 2)) / DIM);
      return d % 2 === 0 ? Math.sin(angle) : Math.cos(angle);
    });
  close(row(r, COUNT - 1 - 4), code(4));
  expectTerms(terms(heed, problem), past, [
    (i, j) => content(i, j) / Math.sqrt(DIM),
    (i, j) => dot(row(Q, i), code(i - j)) / Math.sqrt(DIM),
    (_, j) => dot(u, row(K, j)) / Math.sqrt(DIM),
    (i, j) => dot(v, code(i - j)) / Math.sqrt(DIM),
  ]);
  // Of all distances v likes the one that it was given.
  const liking = WORDS.map((_, distance) => dot(v, code(distance)));
  expect(liking.indexOf(Math.max(...liking))).toBe(3);
});

test("shaw and disentangled: the rows of a distance, up to a limit", () => {
  for (const limit of [1, 4, 12]) {
    const shaw = shawParts(limit);
    const clipped = (i: number, j: number) => limit + Math.max(-limit, Math.min(limit, j - i));
    expectTerms(terms(heed, shaw), all, [
      (i, j) => content(i, j) / Math.sqrt(DIM),
      (i, j) => dot(row(Q, i), row(table(shaw, "relativeKeys"), clipped(i, j))) / Math.sqrt(DIM),
    ]);
    const apart = disentangledParts(limit);
    const spanned = (i: number, j: number) => Math.max(0, Math.min(2 * limit - 1, i - j + limit));
    expectTerms(terms(heed, apart), all, [
      (i, j) => content(i, j) / Math.sqrt(3 * DIM),
      (i, j) =>
        dot(row(Q, i), row(table(apart, "relativeKeys"), spanned(i, j))) / Math.sqrt(3 * DIM),
      (i, j) =>
        dot(row(K, j), row(table(apart, "relativeQueries"), spanned(i, j))) / Math.sqrt(3 * DIM),
    ]);
  }
});

test("a shorter table of distances keeps the rows of the longer one", () => {
  const [long, short] = [table(shawParts(8), "relativeKeys"), table(shawParts(2), "relativeKeys")];
  for (let distance = -2; distance <= 2; distance++)
    expect(row(short, 2 + distance)).toEqual(row(long, 8 + distance));
});

test("forgetting: the gates after the key up to the query", () => {
  const chosen = { ...GATES, word: 4, one: 0.25 };
  const faded = (i: number, j: number) => {
    let sum = 0;
    for (let l = j + 1; l <= i; l++) sum += Math.log(gateOf(chosen, l));
    return sum;
  };
  expectTerms(terms(heed, gates(chosen)), past, [(i, j) => content(i, j) / Math.sqrt(DIM), faded]);
});

test("cope: the p-th counted word wins, wherever it stands", () => {
  for (const word of COUNTED) {
    const places = WORDS.flatMap((other, at) => (other === word ? [at] : []));
    places.toReversed().forEach((place, back) => {
      const found = counted(heed, { ...COUNTING, word, which: back + 1 });
      const last = row(found.weights, COUNT - 1, COUNT);
      expect(last.indexOf(Math.max(...last))).toBe(place);
      const [dots, logits] = found.terms.map(({ scores }) => row(scores, COUNT - 1, COUNT));
      let position = 0;
      for (let j = COUNT - 1; j >= 0; j--) {
        position += sigmoid(dots?.[j] as number);
        expect(found.positions[(COUNT - 1) * COUNT + j]).toBeCloseTo(position, 4);
        // The one entry of the table, interpolated.
        const logit = 6 * Math.max(0, 1 - Math.abs(position - (back + 1)));
        expect(Math.abs((logits?.[j] as number) - logit)).toBeLessThan(2e-4);
      }
    });
  }
});

/** T5's bucket of a distance key minus query, from its published code. */
function bucketOf(distance: number, { count, farthest, direction }: typeof BUCKETS): number {
  const side = direction === "bidirectional" ? count / 2 : count;
  const first = direction === "bidirectional" && distance > 0 ? side : 0;
  const far = direction === "bidirectional" ? Math.abs(distance) : Math.max(0, -distance);
  const exact = side / 2;
  if (far < exact) return first + far;
  const part = Math.log(far / exact) / Math.log(farthest / exact);
  return first + Math.min(side - 1, exact + Math.floor(part * (side - exact) + 1e-9));
}

test("t5: the buckets of all distances, and their biases", () => {
  const all = COUNTS.flatMap((count) =>
    FARTHEST.flatMap((farthest) =>
      (["bidirectional", "causal"] as const).map((direction) => ({ count, farthest, direction })),
    ),
  );
  expect(all).toContainEqual(BUCKETS);
  for (const chosen of all) {
    const found = bucketed(heed, chosen);
    const buckets = Array.from({ length: 2 * FAR + 1 }, (_, at) => bucketOf(at - FAR, chosen));
    expect([...found.bucket]).toEqual(buckets);
    const table = biases(chosen);
    close(
      found.bias,
      buckets.map((bucket) => table[bucket] as number),
    );
    const steps = stepsOf(found);
    expect(steps[0]?.from).toBe(-FAR);
    expect(steps.at(-1)?.to).toBe(FAR);
    for (const [at, step] of steps.entries())
      if (at > 0) expect(step.from).toBe((steps[at - 1]?.to as number) + 1);
  }
});

const normalisers: Record<Normaliser, (scores: readonly number[]) => number[]> = {
  hard: (scores) => scores.map((_, at) => (scores.indexOf(Math.max(...scores)) === at ? 1 : 0)),
  top_k: (scores) => {
    const least = scores.toSorted((a, b) => b - a)[2] as number;
    return softmax(scores.map((score) => (score >= least ? score : -Infinity)));
  },
  sigmoid: (scores) => scores.map((score) => sigmoid(score - 2)),
  relu: (scores) => scores.map((score) => Math.max(0, score) / KEYS),
  relu_squared: (scores) => scores.map((score) => Math.max(0, score) ** 2 / KEYS),
  average: (scores) => scores.map(() => 1 / KEYS),
  stick_breaking: (scores) => {
    let left = 1;
    return scores
      .toReversed()
      .map((score) => {
        const own = left * sigmoid(score);
        left -= own;
        return own;
      })
      .toReversed();
  },
};
const PARAMS = { top_k: { topK: 3 }, sigmoid: { sigmoidBias: -2 } };

test("normalisers: the row, and the row while one score moves", () => {
  for (const [id, truth] of Object.entries(normalisers) as [
    Normaliser,
    (typeof normalisers)["hard"],
  ][]) {
    const moved = 2;
    const params = id in PARAMS ? PARAMS[id as keyof typeof PARAMS] : {};
    const found = rowOf(heed, id, RESTING, moved, { params });
    close(found.weights, truth(RESTING));
    close(found.softmax, softmax(RESTING));
    // Places between the other scores: a tie could go either way.
    for (const at of [0, 33, 91, 151, 213]) {
      const scores = RESTING.map((score, key) => (key === moved ? (PLACES[at] as number) : score));
      close(row(found.sweep, at, KEYS), truth(scores));
      close(row(found.softmaxSweep, at, KEYS), softmax(scores));
    }
  }
});

test("average: hidden keys get nothing, the others the same", () => {
  const { weights } = rowOf(heed, "average", RESTING, 0, { visible: 4 });
  close(weights, [0.25, 0.25, 0.25, 0.25, 0, 0, 0]);
});

test("the pieces of a stick and what is left are the whole stick", () => {
  const { weights } = rowOf(heed, "stick_breaking", RESTING, 0);
  const { pieces, rest } = piecesOf(weights);
  expect(pieces.map(({ key }) => key)).toEqual([6, 5, 4, 3, 2, 1, 0]);
  expect(pieces.reduce((sum, { weight }) => sum + weight, rest)).toBeCloseTo(1, 6);
  for (const { key, left, weight } of pieces)
    if (left > 0.01) expect(weight / left).toBeCloseTo(sigmoid(RESTING[key] as number), 4);
});

test("scores of a link are all there and in range, or none of them are taken", () => {
  expect(scoresIn(scoresText(RESTING))).toEqual([...RESTING]);
  for (const wrong of [
    "",
    "1,2",
    "1,2,3,4,5,6,7",
    "0,0,0,,0,0,0",
    "0,0,0,NaN,0,0,0",
    "0,0,0,0,0,0,0,0",
  ])
    expect(scoresIn(wrong)).toBeNull();
  expect(rivalOf([1, 5, 3], 1)).toBe(2);
  expect(rivalOf([1, 5, 3], 2)).toBe(1);
});

const [cosine, gaussian, general, concat] = [
  { id: "cosine", params: { temperature: 0.25 } },
  { id: "gaussian", params: { width: 0.5 } },
  {
    id: "luong_general",
    params: { scale: 1 },
    extra: { scoreMatrix: floats(matrixOf(90, 0.5), [2, 2]) },
  },
  {
    id: "luong_concat",
    extra: { concatWeight: floats(networkOf(3), [UNITS, 4]), scoreVector: floats(VECTOR, [UNITS]) },
  },
] satisfies Score[];
const product = (q: Point, k: Point) => q[0] * k[0] + q[1] * k[1];
const scoresOfPlane: readonly [Score, (q: Point, k: Point) => number][] = [
  [{ id: "luong_dot" }, product],
  [{ id: "scaled_dot_product" }, (q, k) => product(q, k) / Math.SQRT2],
  [cosine, (q, k) => (lengthOf(k) < 1e-9 ? 0 : product(q, k) / lengthOf(q) / lengthOf(k) / 0.25)],
  [gaussian, (q, k) => -0.5 * ((q[0] - k[0]) ** 2 + (q[1] - k[1]) ** 2) * 4],
  // A quarter of a turn, after which the second dimension of keys counts half.
  [general, (q, k) => product([-q[1], 0.5 * q[0]], k)],
  [concat, (q, k) => 2 * Math.tanh(3 * (k[0] - q[0])) + 2 * Math.tanh(3 * (k[1] - q[1]))],
];

test("scores of the plane: every key, one key as it grows, and as it turns", () => {
  const query = { angle: 40, length: 1.5 };
  const q = at(query.angle, query.length);
  const key = keyAt(5, 30);
  for (const [score, truth] of scoresOfPlane) {
    const found = plane(heed, score, query, key);
    const cells = Array.from({ length: SIDE * SIDE }, (_, cell) =>
      truth(q, keyAt(Math.floor(cell / SIDE), cell % SIDE)),
    );
    close(found.field, cells);
    close(
      found.along,
      LENGTHS.map((length) => truth(q, at(angleOf(key), length))),
    );
    close(
      found.around,
      ANGLES.map((angle) => truth(q, at(query.angle + angle, lengthOf(key)))),
    );
    close(found.unit, [truth(q, [1, 0]), truth(q, [0, 1])]);
  }
});

test("the plane's picture and its keys agree on where a cell is", () => {
  for (const [row, column] of [
    [0, 0],
    [40, 40],
    [13, 27],
  ] as const) {
    const [x, y] = placeIn(400, keyAt(row, column));
    expect(cellUnder(400, x, y)).toEqual({ row, column });
  }
  expect(cellUnder(400, 401, 5)).toBeNull();
  expect(cellUnder(400, 5, -1)).toBeNull();
});

test("sinusoidal: waves from their formula, products from the distance alone", () => {
  for (const codeLayout of ["interleaved", "concatenated"]) {
    const params = { base: 500, positionOffset: 30, codeLayout };
    const found = code(heed, { id: "sinusoidal", params });
    const half = CODE_DIM / 2;
    const wanted = Array.from({ length: POSITIONS * CODE_DIM }, (_, place) => {
      const [position, d] = [30 + Math.floor(place / CODE_DIM), place % CODE_DIM];
      const [pair, sine] =
        codeLayout === "interleaved" ? [Math.floor(d / 2), d % 2 === 0] : [d % half, d < half];
      const angle = position / 500 ** (pair / half);
      return sine ? Math.sin(angle) : Math.cos(angle);
    });
    close(found.rows, wanted, 1e-4);
    for (const [i, j] of [
      [3, 10],
      [40, 47],
    ] as const)
      expect(found.products[i * POSITIONS + j]).toBeCloseTo(found.products[7] as number, 4);
    expect(found.products[0]).toBeCloseTo(1, 5);
  }
});

test("learned positions: rows as they are, none beyond, or the table stretched", () => {
  const coding = { id: "learned_position" as const, params: {}, extra: { table: tableOf(40) } };
  close(code(heed, { ...coding, len: 40 }).rows, [...(tableOf(40).data as Float32Array)]);
  expect(refusal(heed, coding)).toContain("table has 40 rows");
  const stretched = { ...coding, params: { interpolate: true } };
  expect(refusal(heed, stretched)).toBeNull();
  const { rows, len } = code(heed, stretched);
  expect(len).toBe(POSITIONS);
  // Halfway between the centres of two rows, as images are stretched.
  const from = (position: number) => ((position + 0.5) * 40) / POSITIONS - 0.5;
  for (const position of [1, 20, 50]) {
    const [low, part] = [Math.floor(from(position)), from(position) % 1];
    const table = tableOf(40).data as Float32Array;
    const mixed = row(table, low, CODE_DIM).map(
      (value, d) => (1 - part) * value + part * (row(table, low + 1, CODE_DIM)[d] as number),
    );
    close(row(rows, position, CODE_DIM), mixed);
  }
});

test("xpos: the product of RoPE, each pair times what is left of it", () => {
  const [gamma, base] = [0.3, 256];
  const found = fading(heed, gamma, base);
  const pairs = Array.from({ length: XPOS_DIM / 2 }, (_, pair) => pair);
  const left = (pair: number, distance: number) =>
    (((2 * pair) / XPOS_DIM + gamma) / (1 + gamma)) ** (distance / base);
  const turned = (pair: number, distance: number) =>
    Math.cos(distance / 10_000 ** ((2 * pair) / XPOS_DIM));
  for (const distance of [0, 1, 77, 500, 1023]) {
    close(
      row(found.lengths, distance, XPOS_DIM / 2),
      pairs.map((pair) => left(pair, distance)),
      1e-4,
    );
    const sum = (term: (pair: number) => number) =>
      pairs.reduce((total, pair) => total + term(pair), 0) / (XPOS_DIM / 2);
    expect(found.rope[distance]).toBeCloseTo(
      sum((pair) => turned(pair, distance)),
      4,
    );
    expect(found.xpos[distance]).toBeCloseTo(
      sum((pair) => left(pair, distance) * turned(pair, distance)),
      4,
    );
  }
});
