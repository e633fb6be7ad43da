// What the pages of maps that are compared compute, against plain float64 loops written here.
import { type Heed, load } from "heed";
import { beforeAll, expect, test } from "vitest";
import { disagreement } from "../../web/src/lib/call.js";
import { HEAD_DIM, MODEL_DIM, projectTokens, tokenVectors } from "../../web/src/lib/vectors.js";
import {
  COUNT,
  LOUD,
  maps,
  RESTING,
  shareOfWanted,
  WORDS,
} from "../../web/src/mechanisms/differential/maps.js";
import {
  bytesPerToken,
  changeOf,
  HEADS,
  KEYS,
  QUERIES,
  SETS,
  setOf,
  shared,
} from "../../web/src/mechanisms/grouped_query/sharing.js";
import {
  cacheBytes,
  forms,
  RESTING as SIZES,
} from "../../web/src/mechanisms/multi_head_latent/cache.js";
import { RESTING as MIXING, talk } from "../../web/src/mechanisms/talking_heads/mixing.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

function softmax(scores: readonly number[]): number[] {
  const exps = scores.map((score) => Math.exp(score));
  const sum = exps.reduce((total, value) => total + value, 0);
  return exps.map((value) => value / sum);
}
const row = (all: ArrayLike<number>, at: number): number[] =>
  Array.from({ length: COUNT }, (_, column) => all[at * COUNT + column] as number);
function close(found: readonly number[], wanted: readonly number[]) {
  wanted.forEach((value, at) => {
    expect(Math.abs((found[at] as number) - value)).toBeLessThan(1e-5);
  });
}

test("differential: a map with noise minus λ times the noise alone", () => {
  for (const setting of [RESTING, { lambda: 1, noise: 0 }, { lambda: 0.25, noise: 4 }]) {
    const { first, second, difference } = maps(heed, setting);
    const loud = WORDS.map((word) => (LOUD.includes(word) ? setting.noise : 0));
    for (let i = 0; i < COUNT; i++) {
      const own = WORDS.map((word, j) => (word === WORDS[i] ? 4 : 0) + (loud[j] as number));
      const [a, b] = [softmax(own), softmax(loud)];
      close(row(first, i), a);
      close(row(second, i), b);
      close(
        row(difference, i),
        a.map((weight, j) => weight - setting.lambda * (b[j] as number)),
      );
    }
  }
});

test("differential: taking the noise away leaves more for what is looked for", () => {
  const { first, difference } = maps(heed, RESTING);
  const quiet = WORDS.flatMap((word, at) => (LOUD.includes(word) ? [] : [at]));
  const mean = (weights: Float32Array) =>
    quiet.reduce((sum, at) => sum + shareOfWanted(weights, at), 0) / quiet.length;
  expect(mean(difference)).toBeGreaterThan(mean(first));
});

/** Of every word, its vector times a projection [HEAD_DIM, MODEL_DIM]. */
function projected(projection: readonly number[]): number[][] {
  const x = tokenVectors(WORDS);
  return WORDS.map((_, at) =>
    Array.from({ length: HEAD_DIM }, (_, d) => {
      let sum = 0;
      for (let m = 0; m < MODEL_DIM; m++)
        sum += (x[at * MODEL_DIM + m] as number) * (projection[d * MODEL_DIM + m] as number);
      return sum;
    }),
  );
}

test("the weights of each head, with the mean of its group's projections as keys", () => {
  for (const sets of SETS) {
    const { weights } = shared(heed, sets);
    weights.forEach((map, head) => {
      const group = KEYS.filter((_, other) => setOf(other, sets) === setOf(head, sets));
      const mean = (KEYS[head] as number[]).map(
        (_, at) => group.reduce((sum, keys) => sum + (keys[at] as number), 0) / group.length,
      );
      const [q, k] = [projected(QUERIES[head] as number[]), projected(mean)];
      q.forEach((query, i) => {
        const scores = k.map((key) =>
          query.reduce(
            (sum, value, d) => sum + (value * (key[d] as number)) / Math.sqrt(HEAD_DIM),
            0,
          ),
        );
        close(row(map, i), softmax(scores));
      });
    });
  }
});

test("heads of a group have one set of keys, and the fewer there are the more changes", () => {
  expect(SETS.map((sets) => Array.from({ length: HEADS }, (_, head) => setOf(head, sets)))).toEqual(
    [
      [0, 0, 0, 0, 0, 0, 0, 0],
      [0, 0, 0, 0, 1, 1, 1, 1],
      [0, 0, 1, 1, 2, 2, 3, 3],
      [0, 1, 2, 3, 4, 5, 6, 7],
    ],
  );
  const all = SETS.map((sets) => shared(heed, sets));
  for (const { weights } of all) {
    expect(weights).toHaveLength(HEADS);
    for (const map of weights)
      for (let i = 0; i < COUNT; i++)
        expect(row(map, i).reduce((sum, weight) => sum + weight, 0)).toBeCloseTo(1, 5);
  }
  const own = all[3]?.weights ?? [];
  // The fewer sets, the more the maps change.
  const changes = all.map(({ weights }) =>
    weights.reduce((sum, map, head) => sum + changeOf(map, own[head] ?? []), 0),
  );
  expect(changes.toSorted((a, b) => b - a)).toEqual(changes);
  expect(changes[3]).toBe(0);
});

test("the cache takes two bytes for every number that it holds", () => {
  for (const sets of SETS) expect(bytesPerToken(heed, sets, 128)).toBe(sets * (128 + 128) * 2);
  expect(bytesPerToken(heed, 1, 512, 64)).toBe((512 + 64) * 2);
});

test("latent attention: the bytes of four caches, and one result of two forms", async () => {
  expect(cacheBytes(heed, SIZES)).toEqual({
    multi_head: 128 * 256 * 2,
    grouped_query: 8 * 256 * 2,
    multi_query: 256 * 2,
    multi_head_latent: (512 + 64) * 2,
  });
  // Never more groups than heads.
  expect(cacheBytes(heed, { ...SIZES, heads: 8, sets: 16 }).grouped_query).toBe(8 * 256 * 2);
  const { called, difference } = forms(heed);
  expect(difference).toBeLessThan(1e-6);
  expect(await disagreement(heed, called)).toBeLessThan(2e-6);
});

test("talking heads: the first head with the scores and weights that it hears", () => {
  const { q, k } = projectTokens(WORDS);
  const vector = (side: Float32Array, head: number, at: number) =>
    Array.from(side.subarray((head * COUNT + at) * HEAD_DIM, (head * COUNT + at + 1) * HEAD_DIM));
  const score = (head: number, i: number, j: number) =>
    vector(q, head, i).reduce((sum, x, d) => sum + x * (vector(k, head, j)[d] as number), 0) /
    Math.sqrt(HEAD_DIM);
  const scores = (head: number, i: number) => WORDS.map((_, j) => score(head, i, j));
  for (const mixing of [MIXING, { second: 0.5, third: -0.25, weights: 0.75 }]) {
    const { alone, talking } = talk(heed, mixing);
    for (let i = 0; i < COUNT; i++) {
      const [one, two, three] = [scores(0, i), scores(1, i), scores(2, i)];
      const heard = softmax(
        one.map(
          (own, j) =>
            own + mixing.second * (two[j] as number) + mixing.third * (three[j] as number),
        ),
      );
      const other = softmax(two);
      close(row(alone[0] ?? [], i), softmax(one));
      close(
        row(talking[0] ?? [], i),
        heard.map((own, j) => own + mixing.weights * (other[j] as number)),
      );
      close(row(talking[1] ?? [], i), other);
    }
  }
  // Without what is near, a word that stands twice finds its other place.
  const { alone, talking } = talk(heed, MIXING);
  const [from, to] = [WORDS.lastIndexOf("cat"), WORDS.indexOf("cat")];
  expect(row(alone[0] ?? [], from)[to]).toBeLessThan(row(talking[0] ?? [], from)[to] as number);
  expect(row(talking[0] ?? [], from)[to]).toBeGreaterThan(
    row(talking[0] ?? [], from)[from] as number,
  );
});
