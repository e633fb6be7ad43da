// From tokens to X, Q, K and V. Nothing is learned here: every number follows from the letters of
// the token, its position, and four fixed seeds, so a reader can predict what each head will do.
import { t } from "./messages.js";
import { hashText, normalSource } from "./random.js";

/** The first half of a token vector says what the token is, the second half where it stands. */
export const WHAT_DIM = 16;
export const WHERE_DIM = 16;
export const MODEL_DIM = WHAT_DIM + WHERE_DIM;
export const HEAD_DIM = 16;

const FREQUENCIES = WHERE_DIM / 2;
const SHORTEST_WAVE = 3;
const WAVE_RATIO = 2 ** (5 / 7);
const HALF_NORM = Math.sqrt(FREQUENCIES);

export interface Head {
  title: string;
  /** One sentence that completes "This head ...". */
  looks: string;
}

export const HEADS: readonly Head[] = [
  {
    title: t`Similar letters`,
    looks: t`compares spelling: a word finds itself and its look-alikes`,
  },
  { title: t`The word before`, looks: t`asks for the position just before its own` },
  {
    title: t`Near neighbours`,
    looks: t`compares positions softly: close words count, far ones fade`,
  },
  { title: t`Spread out`, looks: t`has small random projections: a little of everything` },
];

export interface Projections {
  /** [MODEL_DIM, HEAD_DIM] each, row-major. */
  query: Float32Array;
  key: Float32Array;
  value: Float32Array;
}

/** Letters: the sum of one random vector per three-letter piece, so spelling decides likeness. */
function whatVector(token: string): number[] {
  const padded = `<${token.toLowerCase()}>`;
  const pieces = new Set([padded]);
  for (let at = 0; at + 3 <= padded.length; at++) pieces.add(padded.slice(at, at + 3));
  const sum = new Array<number>(WHAT_DIM).fill(0);
  for (const piece of pieces) {
    const normal = normalSource(hashText(piece));
    for (let d = 0; d < WHAT_DIM; d++) sum[d] = (sum[d] ?? 0) + normal();
  }
  const norm = Math.hypot(...sum);
  return sum.map((value) => (HALF_NORM * value) / norm);
}

function frequency(index: number): number {
  return (2 * Math.PI) / (SHORTEST_WAVE * WAVE_RATIO ** index);
}

/** Position: sine and cosine pairs with wavelengths from 3 to 96 words. */
function whereVector(position: number): number[] {
  const vector: number[] = [];
  for (let f = 0; f < FREQUENCIES; f++) {
    vector.push(Math.sin(frequency(f) * position), Math.cos(frequency(f) * position));
  }
  return vector;
}

/** X, [tokens, MODEL_DIM]. */
export function tokenVectors(tokens: readonly string[]): Float32Array {
  const x = new Float32Array(tokens.length * MODEL_DIM);
  tokens.forEach((token, i) => {
    x.set(whatVector(token), i * MODEL_DIM);
    x.set(whereVector(i), i * MODEL_DIM + WHAT_DIM);
  });
  return x;
}

/** A seeded rotation [size, size]: Gram-Schmidt on normal numbers. It hides nothing from a dot
 * product, and shows that Q and K need not look like X. */
function rotation(seed: string, size: number): number[][] {
  const normal = normalSource(hashText(seed));
  const rows: number[][] = [];
  while (rows.length < size) {
    const row = Array.from({ length: size }, normal);
    for (const other of rows) {
      const overlap = row.reduce((sum, value, d) => sum + value * (other[d] ?? 0), 0);
      other.forEach((value, d) => {
        row[d] = (row[d] ?? 0) - overlap * value;
      });
    }
    const norm = Math.hypot(...row);
    rows.push(row.map((value) => value / norm));
  }
  return rows;
}

/** Rows `start` onward of a [MODEL_DIM, HEAD_DIM] matrix become gain[r] * block[r]. */
function place(start: number, block: readonly number[][], gain: (row: number) => number) {
  const matrix = new Float32Array(MODEL_DIM * HEAD_DIM);
  block.forEach((row, r) => {
    matrix.set(
      row.map((value) => gain(r) * value),
      (start + r) * HEAD_DIM,
    );
  });
  return matrix;
}

/** Turns every (sine, cosine) pair back by `steps` positions before `block` is applied. */
function shifted(block: readonly number[][], steps: number): number[][] {
  return block.map((_, r) => {
    const pair = r - (r % 2);
    const angle = -frequency(pair / 2) * steps;
    // Row r of R(angle) times the two block rows of its pair.
    const [toSine, toCosine] =
      r % 2 === 0 ? [Math.cos(angle), -Math.sin(angle)] : [Math.sin(angle), Math.cos(angle)];
    const sine = block[pair] ?? [];
    const cosine = block[pair + 1] ?? [];
    return sine.map((value, d) => toSine * value + toCosine * (cosine[d] ?? 0));
  });
}

function randomMatrix(seed: string, deviation: number): Float32Array {
  const normal = normalSource(hashText(seed));
  return Float32Array.from({ length: MODEL_DIM * HEAD_DIM }, () => deviation * normal());
}

// Gains are chosen so that at the default scale a favourite gets most of the weight, not all.
const LETTERS_GAIN = Math.sqrt(3);
const BEFORE_GAIN = Math.sqrt(5);
const NEAR_GAIN = Math.sqrt(6);
const NEAR_FIRST_FREQUENCY = 3;
const SPREAD_DEVIATION = 0.17;
const VALUE_DEVIATION = 0.25;

function buildProjections(): Projections[] {
  const letters = place(0, rotation("letters", HEAD_DIM), () => LETTERS_GAIN);
  const before = rotation("before", HEAD_DIM);
  const near = place(WHAT_DIM, rotation("near", HEAD_DIM), (row) =>
    row >= 2 * NEAR_FIRST_FREQUENCY ? NEAR_GAIN : 0,
  );
  const value = (head: number) => randomMatrix(`value ${head}`, VALUE_DEVIATION);
  return [
    { query: letters, key: letters, value: value(0) },
    {
      query: place(WHAT_DIM, shifted(before, 1), () => BEFORE_GAIN),
      key: place(WHAT_DIM, before, () => BEFORE_GAIN),
      value: value(1),
    },
    { query: near, key: near, value: value(2) },
    {
      query: randomMatrix("spread query", SPREAD_DEVIATION),
      key: randomMatrix("spread key", SPREAD_DEVIATION),
      value: value(3),
    },
  ];
}

export const PROJECTIONS: readonly Projections[] = buildProjections();

function project(x: Float32Array, length: number, matrix: Float32Array, out: Float32Array) {
  for (let i = 0; i < length; i++) {
    for (let d = 0; d < HEAD_DIM; d++) {
      let sum = 0;
      for (let m = 0; m < MODEL_DIM; m++) {
        sum += (x[i * MODEL_DIM + m] ?? 0) * (matrix[m * HEAD_DIM + d] ?? 0);
      }
      out[i * HEAD_DIM + d] = sum;
    }
  }
}

/** q, k, v: [HEADS.length, length, HEAD_DIM] each. */
export interface Projected {
  length: number;
  x: Float32Array;
  q: Float32Array;
  k: Float32Array;
  v: Float32Array;
}

export function projectTokens(tokens: readonly string[]): Projected {
  const length = tokens.length;
  const x = tokenVectors(tokens);
  const size = length * HEAD_DIM;
  const make = (pick: (p: Projections) => Float32Array) => {
    const all = new Float32Array(PROJECTIONS.length * size);
    PROJECTIONS.forEach((p, head) => {
      project(x, length, pick(p), all.subarray(head * size, (head + 1) * size));
    });
    return all;
  };
  return { length, x, q: make((p) => p.query), k: make((p) => p.key), v: make((p) => p.value) };
}
