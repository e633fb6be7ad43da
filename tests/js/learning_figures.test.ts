// What the pages of pooling, of the short convolution and of the model that learns while it reads compute,
// against plain float64 loops written here.
import { type Heed, load } from "heed";
import { beforeAll, expect, test } from "vitest";
import {
  directionsOf,
  LENGTHS,
  POINTS,
  pooled,
  RESTING as SET,
} from "../../web/src/mechanisms/attention_pooling/set.js";
import {
  filtered,
  RESTING as MEAN,
  SIGNALS,
  signalOf,
  tapsIn,
  tapsText,
} from "../../web/src/mechanisms/causal_conv/filter.js";
import {
  BATCHES,
  COUNT,
  DIM,
  firstModel,
  KEYS,
  RESTING as LESSON,
  lesson,
  meanOf,
  modelAfter,
  type Setting,
  STATE_ROWS,
  TOKENS,
  VALUES,
} from "../../web/src/mechanisms/ttt_linear/learning.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load({ threads: 1 });
});

function close(values: ArrayLike<number>, wanted: readonly number[], tolerance = 1e-5) {
  expect(values.length).toBe(wanted.length);
  wanted.forEach((value, at) => {
    expect(Math.abs((values[at] as number) - value)).toBeLessThan(tolerance);
  });
}

function softmax(scores: readonly number[]): number[] {
  const exps = scores.map((score) => Math.exp(score));
  const sum = exps.reduce((total, value) => total + value, 0);
  return exps.map((value) => value / sum);
}

test("pooling: each query's weights over the members, and their mean point", () => {
  for (const setting of [SET, { members: 2, seeds: 1, direction: 345, length: 8 }]) {
    const members = POINTS.slice(0, setting.members);
    const rowOf = ([x, y]: readonly [number, number], length: number) =>
      softmax(members.map(([a, b]) => length * (x * a + y * b)));
    const pointOf = (weights: readonly number[]) =>
      [0, 1].map((d) => members.reduce((sum, at, j) => sum + (weights[j] ?? 0) * (at[d] ?? 0), 0));
    const directions = directionsOf(setting);
    const rows = directions.map((query) => rowOf(query, setting.length));
    const result = pooled(heed, setting);
    close(result.weights, rows.flat());
    close(result.output, rows.flatMap(pointOf));
    const [first = [1, 0] as const] = directions;
    close(
      result.path,
      LENGTHS.flatMap((length) => pointOf(rowOf(first, length))),
    );
    expect(result.difference).toBeLessThan(1e-6);
  }
});

test("pooling: a query of length 0 gives the mean, a long one the farthest member", () => {
  const { path } = pooled(heed, SET);
  const members = POINTS.slice(0, SET.members);
  close(
    path.subarray(0, 2),
    [0, 1].map((d) => members.reduce((sum, at) => sum + (at[d] ?? 0), 0) / members.length),
  );
  const [[x, y] = [1, 0]] = directionsOf(SET);
  const farthest = members.toSorted((a, b) => x * b[0] + y * b[1] - x * a[0] - y * a[1])[0];
  const last = path.subarray(-2);
  expect(
    Math.hypot((last[0] ?? 0) - (farthest?.[0] ?? 0), (last[1] ?? 0) - (farthest?.[1] ?? 0)),
  ).toBeLessThan(0.15);
});

test("short convolution: four taps over zeros and the signal, at once and token by token", () => {
  for (const signal of SIGNALS) {
    const x = signalOf(signal);
    for (const taps of [MEAN, [0.5, -0.25, 1, -1]]) {
      for (const activation of ["none", "silu"] as const) {
        const wanted = x.map((_, t) => {
          let sum = 0;
          for (let j = 0; j < 4; j++) sum += (taps[j] as number) * (x[t - 3 + j] ?? 0);
          return activation === "silu" ? sum / (1 + Math.exp(-sum)) : sum;
        });
        const { output, stepped } = filtered(heed, signal, taps, activation);
        close(output, wanted, 1e-6);
        close(stepped, wanted, 1e-6);
      }
    }
  }
  // A pulse comes out as the taps, the last one first.
  const { output } = filtered(heed, "pulse", [0.1, 0.2, 0.3, 0.4], "none");
  close(output.subarray(5, 12), [0, 0.4, 0.3, 0.2, 0.1, 0, 0], 1e-6);
});

test("short convolution: a link's taps are four steps in range, or nothing", () => {
  expect(tapsIn(tapsText(MEAN))).toEqual(MEAN);
  expect(tapsIn("-1,0,0.05,1")).toEqual([-1, 0, 0.05, 1]);
  for (const text of ["", "1,1,1", "1,1,1,1,1", "1,1,1,2", "1,1,1,0.01", "a,b,c,d", "1,,1,1"])
    expect(tapsIn(text)).toBeNull();
});

type Model = number[][];
const rowsOf = (all: readonly number[]): Model =>
  Array.from({ length: all.length / DIM }, (_, row) => all.slice(row * DIM, (row + 1) * DIM));

/** What the inner model makes of a key: x + norm(W x + b); also the normed row and its deviation. */
function ask(model: Model, key: readonly number[]) {
  const z = (model[DIM] as number[]).map((bias, e) =>
    key.reduce((sum, x, c) => sum + x * (model[c]?.[e] as number), bias),
  );
  const mean = z.reduce((sum, x) => sum + x, 0) / DIM;
  const deviation = Math.sqrt(z.reduce((sum, x) => sum + (x - mean) ** 2, 0) / DIM + 1e-6);
  const normed = z.map((x) => (x - mean) / deviation);
  return { deviation, normed, answer: normed.map((x, e) => x + (key[e] as number)) };
}
const lossOf = (answer: readonly number[], value: readonly number[]) =>
  answer.reduce((sum, x, e) => sum + (x - (value[e] as number)) ** 2, 0) / 2 / DIM;

/** Steps of gradient descent; the gradient by finite differences of the loss, so nothing is derived here. */
function slopeOf(model: Model, key: readonly number[], value: readonly number[]): Model {
  const loss = () => lossOf(ask(model, key).answer, value) * DIM;
  return model.map((row) =>
    row.map((kept, e) => {
      const step = 1e-5;
      row[e] = kept + step;
      const above = loss();
      row[e] = kept - step;
      const below = loss();
      row[e] = kept;
      return (above - below) / (2 * step);
    }),
  );
}

function learn({ miniBatch, rate }: Setting, tokens: number) {
  const [keys, values] = [rowsOf(KEYS), rowsOf(VALUES)];
  let begun = rowsOf(firstModel());
  const now = rowsOf(firstModel());
  const [before, after]: [number[], number[]] = [[], []];
  for (let t = 0; t < tokens; t++) {
    const [key, value] = [keys[t] as number[], values[t] as number[]];
    before.push(lossOf(ask(now, key).answer, value));
    if (t % miniBatch === 0) begun = now.map((row) => [...row]);
    const slope = slopeOf(begun, key, value);
    for (const [c, row] of now.entries())
      for (let e = 0; e < DIM; e++) row[e] = (row[e] as number) - rate * (slope[c]?.[e] as number);
    after.push(lossOf(ask(now, key).answer, value));
  }
  return { before, after, now };
}

test("TTT-Linear: the loss of each token before and after its step of gradient descent", () => {
  for (const setting of [
    LESSON,
    { miniBatch: 4, rate: 1.2 },
    { miniBatch: 26, rate: 0 },
  ] as const) {
    const { before, after } = lesson(heed, setting);
    const wanted = learn(setting, TOKENS);
    close(before, wanted.before, 2e-4);
    close(after, wanted.after, 2e-4);
  }
});

test("TTT-Linear: the model after some tokens, and what the last one changed", () => {
  const setting = { miniBatch: 4, rate: 0.6 } as const;
  for (const count of [1, 15]) {
    const { model, change } = modelAfter(heed, setting, count);
    const [later, earlier] = [learn(setting, count), learn(setting, count - 1)];
    expect(model).toHaveLength(STATE_ROWS * DIM);
    close(model, later.now.flat(), 2e-4);
    close(
      change,
      later.now.flatMap((row, c) => row.map((x, e) => x - (earlier.now[c]?.[e] as number))),
      2e-4,
    );
  }
});

test("TTT-Linear: every reading of the sentence is guessed better than the one before", () => {
  for (const miniBatch of BATCHES) {
    const { before } = lesson(heed, { miniBatch, rate: 0.6 });
    const means = [0, 1, 2, 3].map((at) => meanOf(before.slice(at * COUNT, (at + 1) * COUNT)));
    expect(means.toSorted((a, b) => b - a)).toEqual(means);
  }
});
