// What the pages of attention without comparisons, with gates and with memories compute, against plain
// float64 loops written here.
import { type Heed, load } from "heed";
import { beforeAll, expect, test } from "vitest";
import { channel, pairBias } from "../../web/src/mechanisms/attention_free/channels.js";
import {
  RESTING as MEMORY,
  memory,
  memoryKeys,
  QUERIES,
  SCALE,
  shareOf,
} from "../../web/src/mechanisms/external/memory.js";
import {
  RESTING as GATE,
  GATES,
  gated,
  gateLogits,
  IDLE,
  lengthOf,
} from "../../web/src/mechanisms/gated/gates.js";
import { COUNT, DIM, K, Q, V, WORDS } from "../../web/src/mechanisms/linear/state.js";
import {
  align,
  codeOf,
  found,
  MEANING,
  ORDERS,
  COUNT as PAIRS,
  placeOf,
  SOURCES,
} from "../../web/src/mechanisms/luong_location/places.js";
import {
  DENSE_KEYS,
  orderOf,
  RANDOM_SCORES,
  rows,
} from "../../web/src/mechanisms/synthesizer/rows.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

type Rows = readonly (readonly number[])[];

function softmax(scores: readonly number[]): number[] {
  const most = Math.max(...scores);
  const exps = scores.map((score) => Math.exp(score - most));
  const sum = exps.reduce((total, value) => total + value, 0);
  return exps.map((value) => value / sum);
}
const dot = (a: readonly number[], b: readonly number[]) =>
  a.reduce((sum, value, at) => sum + value * (b[at] as number), 0);
const rowsOf = (all: ArrayLike<number>, width: number): number[][] =>
  Array.from({ length: all.length / width }, (_, i) =>
    Array.from({ length: width }, (_, at) => all[i * width + at] as number),
  );
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
function close(values: ArrayLike<number>, wanted: Rows, tolerance = 1e-5) {
  expect(values.length).toBe(wanted.flat().length);
  wanted.flat().forEach((value, at) => {
    expect(Math.abs((values[at] as number) - value)).toBeLessThan(tolerance);
  });
}
/** [places, dimensions] of all words, in this order. */
const wordRows = (all: Float32Array, order = WORDS.map((_, at) => at)) =>
  order.map((word) => rowsOf(all, DIM)[word] as number[]);

test("synthesizer: rows of words, of places, and of pairs", () => {
  for (const steps of [0, 4, 12]) {
    const order = orderOf(steps);
    const [q, k] = [wordRows(Q, order), wordRows(K, order)];
    const wanted = {
      dot: q.map((query) => softmax(k.map((key) => dot(query, key) / Math.sqrt(DIM)))),
      dense: q.map((query) => {
        const hidden = query.map((x) => Math.max(0, x));
        return softmax(rowsOf(DENSE_KEYS.data, DIM).map((key) => dot(hidden, key)));
      }),
      random: rowsOf(RANDOM_SCORES.data, COUNT).map(softmax),
    };
    for (const way of ["dot", "dense", "random"] as const)
      close(rows(heed, way, steps).weights, wanted[way]);
  }
});

test("synthesizer: dense rows go with their word, random ones stay at their place", () => {
  for (const steps of [1, 4]) {
    const [dotted, dense, random] = (["dot", "dense", "random"] as const).map((way) =>
      rows(heed, way, steps),
    );
    expect(dotted?.ofPlaces).toBeGreaterThan(0.2);
    expect(dotted?.ofWords).toBeGreaterThan(0.2);
    expect(dense?.ofPlaces).toBeGreaterThan(0.2);
    expect(dense?.ofWords).toBeLessThan(1e-6);
    expect(random?.ofPlaces).toBe(0);
    expect(random?.ofWords).toBeGreaterThan(0.2);
  }
});

test("location: softmax of codes for the places, whatever the order of the words", () => {
  const codes = Array.from({ length: PAIRS }, (_, at) => codeOf(at));
  for (const order of ORDERS) {
    for (const sharpness of [0, 1, 1.75]) {
      const { byPlace, byMeaning } = align(heed, order, sharpness);
      close(
        byPlace,
        codes.map((own) => softmax(codes.map((other) => sharpness * dot(own, other)))),
      );
      close(
        byMeaning,
        codes.map((_, i) => softmax(SOURCES[order].map((pair) => (pair === i ? MEANING : 0)))),
      );
    }
  }
});

test("location: the order decides how many words find their translation", () => {
  const counts = ORDERS.map((order) => {
    const { byPlace, byMeaning } = align(heed, order, 1);
    expect(found(byMeaning, order)).toBe(PAIRS);
    return found(byPlace, order);
  });
  // In the same order all do, with the verb last all but the last three, backwards the middle one alone.
  expect(counts).toEqual([9, 6, 1]);
  expect(placeOf("last", 6)).toBe(8);
});

test("gated: attention times the sigmoid of the gate", () => {
  const [q, k, v] = [wordRows(Q), wordRows(K), wordRows(V)];
  const weights = q.map((query) => softmax(k.map((key) => dot(query, key) / Math.sqrt(DIM))));
  const attended = weights.map((row) =>
    Array.from({ length: DIM }, (_, c) =>
      dot(
        row,
        v.map((value) => value[c] as number),
      ),
    ),
  );
  for (const kind of GATES) {
    for (const sure of [0, 3, 6]) {
      const { data } = gateLogits({ kind, sure });
      const logits = rowsOf(data, data.length / COUNT);
      const result = gated(heed, { kind, sure });
      const gates = logits.map((row) =>
        Array.from({ length: DIM }, (_, c) => sigmoid(row[c % row.length] as number)),
      );
      close(result.attended, attended);
      close(result.gates, gates);
      close(
        result.output,
        attended.map((row, i) => row.map((x, c) => x * (gates[i]?.[c] as number))),
      );
      for (const sum of result.sums) expect(Math.abs(sum - 1)).toBeLessThan(1e-6);
    }
  }
});

test("gated: words that need nothing let less pass than any other", () => {
  const { attended, output } = gated(heed, GATE);
  const passed = WORDS.map((word, i) => ({
    word,
    share: lengthOf(output, i) / lengthOf(attended, i),
  }));
  const ofIdle = passed.filter(({ word }) => IDLE.includes(word)).map(({ share }) => share);
  const ofOthers = passed.filter(({ word }) => !IDLE.includes(word)).map(({ share }) => share);
  expect(Math.max(...ofIdle)).toBeLessThan(Math.min(...ofOthers));
});

test("attention-free: exp(w + k) in each channel, behind the query's gate", () => {
  const [q, k, v] = [wordRows(Q), wordRows(K), wordRows(V)];
  const learned = rowsOf(pairBias(), COUNT);
  for (const local of [1, 3, COUNT]) {
    const bias = learned.map((row, i) => row.map((w, j) => (Math.abs(i - j) < local ? w : 0)));
    for (const at of [0, 5]) {
      const shown = channel(heed, at, local);
      const keys = k.map((key) => key[at] as number);
      const weights = bias.map((row) => softmax(row.map((w, j) => w + (keys[j] as number))));
      close(shown.bias, bias, 1e-6);
      close(shown.weights, weights);
      close(
        shown.simple,
        WORDS.map(() => softmax(keys)),
      );
      const gates = q.map((query) => sigmoid(query[at] as number));
      close(shown.gates, [gates]);
      const means = weights.map((row) =>
        dot(
          row,
          v.map((value) => value[at] as number),
        ),
      );
      close(shown.output, [means.map((mean, i) => mean * (gates[i] as number))]);
    }
  }
});

test("external: over the words, then over the units, and nothing that a unit has in common", () => {
  const queries = rowsOf(QUERIES, DIM + 1);
  for (const setting of [MEMORY, { units: 2, loud: 0 }, { units: 12, loud: 8 }]) {
    const units = rowsOf(memoryKeys(setting), DIM + 1);
    const scores = queries.map((query) => units.map((unit) => SCALE * dot(query, unit)));
    const ofWords = units.map((_, u) => softmax(scores.map((row) => row[u] as number)));
    const columns = queries.map((_, i) => ofWords.map((column) => column[i] as number));
    const result = memory(heed, setting);
    close(result.columns, columns);
    close(result.plain, scores.map(softmax));
    close(
      result.weights,
      columns.map((row) => {
        const sum = row.reduce((total, value) => total + value, 0);
        return row.map((value) => value / sum);
      }),
    );
  }
  const [quiet, loud] = [0, 8].map((added) => memory(heed, { units: 8, loud: added }));
  close(loud?.weights ?? [], rowsOf(quiet?.weights ?? [], 8));
  expect(shareOf(loud?.plain ?? new Float32Array(), 0)).toBeGreaterThan(0.9);
});
