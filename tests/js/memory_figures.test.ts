// What the pages of recurrent mechanisms show of a state, against plain float64 loops written here.
import { type Heed, load } from "heed";
import { beforeAll, expect, test } from "vitest";
import {
  COUNT,
  channelDecay,
  DIM,
  everyToken,
  type Film,
  film,
  type Recurrence,
  softmaxWeights,
  tokenDecay,
  tracesOf,
  VECTORS,
  WORDS,
} from "../../web/src/mechanisms/gated_linear/story.js";
import { gates } from "../../web/src/mechanisms/hgrn2/gates.js";
import { LEVELS, levelWeights } from "../../web/src/mechanisms/log_linear/levels.js";
import { eraseInputs } from "../../web/src/mechanisms/rwkv7/erase.js";

let heed: Heed;
beforeAll(async () => {
  heed = await load();
});

const upTo = (count: number) => Array.from({ length: count }, (_, at) => at);
const row = (all: ArrayLike<number>, at: number, width = DIM): number[] =>
  upTo(width).map((d) => all[at * width + d] as number);

interface Loop {
  q: Float32Array;
  k: Float32Array;
  /** Share of every channel that token t leaves. */
  kept: (t: number, channel: number) => number;
  /** Takes off what the state knows of key and value before it writes. */
  delta?: number;
  erase?: { key: Float32Array; rate: number };
  bonus?: number;
}

/** Token by token, values as unit vectors. */
function plainLoop({ q, k, kept, delta, erase, bonus }: Loop) {
  let state = upTo(DIM).map(() => new Array<number>(COUNT).fill(0));
  const states: number[][] = [];
  const weights: number[] = [];
  const read = (t: number) =>
    upTo(COUNT).map((j) =>
      row(q, t).reduce((sum, value, c) => sum + value * (state[c]?.[j] as number), 0),
    );
  for (const t of upTo(COUNT)) {
    const key = row(k, t);
    const early = read(t);
    const before = state;
    state = state.map((line, c) => line.map((value) => kept(t, c) * value));
    if (erase) {
      const direction = row(erase.key, t);
      const known = upTo(COUNT).map((j) =>
        direction.reduce((sum, value, c) => sum + value * (before[c]?.[j] as number), 0),
      );
      state = state.map((line, c) =>
        line.map(
          (value, j) => value - erase.rate * (direction[c] as number) * (known[j] as number),
        ),
      );
    }
    const known = upTo(COUNT).map((j) =>
      key.reduce((sum, value, c) => sum + value * (state[c]?.[j] as number), 0),
    );
    const write = upTo(COUNT).map((j) => {
      const value = j === t ? 1 : 0;
      return delta === undefined ? value : delta * (value - (known[j] as number));
    });
    state = state.map((line, c) =>
      line.map((value, j) => value + (key[c] as number) * (write[j] as number)),
    );
    states.push(state.flat());
    if (bonus === undefined) {
      weights.push(...read(t));
    } else {
      const own = row(q, t).reduce((sum, value, c) => sum + value * bonus * (key[c] as number), 0);
      weights.push(...early.map((value, j) => (j === t ? value + own : value)));
    }
  }
  return { states, weights };
}

function expectFilm(recurrence: Recurrence, loop: Loop): Film {
  const shown = film(heed, recurrence);
  const truth = plainLoop(loop);
  for (const [at, weight] of truth.weights.entries()) {
    expect(Math.abs((shown.weights[at] as number) - weight), `weight ${at}`).toBeLessThan(1e-5);
  }
  for (const [t, state] of truth.states.entries()) {
    for (const [at, value] of state.entries()) {
      const own = shown.states[t]?.[at] as number;
      expect(Math.abs(own - value), `state ${t}, number ${at}`).toBeLessThan(1e-5);
    }
  }
  return shown;
}

const STOPS = [5, 11];
const stop = (t: number, left: number) => (STOPS.includes(t) ? left : 1);
const channel = (slow: number, fast: number, c: number) =>
  slow ** (1 - c / (DIM - 1)) * fast ** (c / (DIM - 1));
const plain = { q: VECTORS, k: VECTORS };
const params = { scale: 1 };

test("GatedStatesFadeByChannelAndByToken", () => {
  const kept = (t: number, c: number) => channel(0.98, 0.6, c) * stop(t, 0.3);
  const perToken = { channelLogDecay: channelDecay(0.98, 0.6, 0.3) };
  expectFilm({ id: "gated_linear", params, perToken }, { ...plain, kept });
  const bonus = { data: new Float32Array(DIM).fill(2), shape: [1, DIM] };
  expectFilm({ id: "rwkv6", params, perToken, fixed: { bonus } }, { ...plain, kept, bonus: 2 });
  const beta = everyToken(0.75);
  const delta = { ...plain, kept, delta: 0.75 };
  expectFilm({ id: "kimi_delta", params, perToken: { ...perToken, beta } }, delta);
});

test("AnErasedKeyMayBeAnother", () => {
  const kept = (_: number, c: number) => channel(1, 0.95, c);
  for (const erased of ["own", "before"] as const) {
    const inputs = eraseInputs(erased, 0.5);
    const perToken = { channelLogDecay: channelDecay(1, 0.95, 1), ...inputs };
    const erase = { key: inputs.eraseKey as Float32Array, rate: 0.5 };
    expectFilm({ id: "rwkv7", params, perToken }, { ...plain, kept, erase });
  }
});

test("OneDecayATokenGivesTracesThatAreProductsOfShares", () => {
  const kept = (t: number) => 0.9 * stop(t, 0.2);
  const perToken = { logDecay: tokenDecay(0.9, 0.2), beta: everyToken(1) };
  const shown = expectFilm({ id: "mamba2", params, perToken }, { ...plain, kept });
  for (const [since, share] of tracesOf(shown, 2).entries()) {
    const product = upTo(since).reduce((all, at) => all * kept(3 + at), 1);
    expect(share).toBeCloseTo(product, 5);
  }
  // The second "Ada" takes off what the first one wrote; other words keep theirs.
  const delta = expectFilm(
    { id: "gated_delta_rule", params, perToken },
    { ...plain, kept, delta: 1 },
  );
  const [first, again] = [WORDS.indexOf("Ada"), WORDS.lastIndexOf("Ada")];
  const fades = tracesOf(shown, first);
  const erased = tracesOf(delta, first);
  expect(erased[again] as number).toBeLessThan(0.5 * (fades[again] as number));
});

test("WhereNothingIsReplacedNothingIsWrittenAndNoTraceIsLeft", () => {
  const kept = (t: number) => 0.9 * stop(t, 0.2);
  const perToken = { logDecay: tokenDecay(0.9, 0.2), beta: everyToken(0) };
  const shown = expectFilm(
    { id: "gated_delta_rule", params, perToken },
    { ...plain, kept, delta: 0 },
  );
  for (const token of upTo(COUNT))
    expect(tracesOf(shown, token)).toEqual(upTo(COUNT - token).map(() => 0));
});

test("Hgrn2WritesWhatItForgets", () => {
  const { q, perToken } = gates(0.8);
  const logs = perToken.channelLogDecay;
  const kept = (t: number, c: number) => Math.exp(logs[t * DIM + c] as number);
  const k = logs.map((value) => -Math.expm1(value));
  const shown = expectFilm({ id: "hgrn2", params, k: null, q, perToken }, { q, k, kept });
  for (const t of upTo(COUNT)) expect(shown.weights[t * COUNT + t]).toBeCloseTo(1, 5);
});

test("TheHeadsOfLightningForgetAtFixedRates", () => {
  const HEADS = 8;
  const left = upTo(HEADS).map((head) => {
    const shown = film(heed, {
      id: "lightning",
      params: { scale: 1, layerDepth: 0 },
      heads: HEADS,
      head,
    });
    const rate = Math.exp(-(2 ** -(head + 1))); // ALiBi's slopes for 8 heads
    for (const [since, share] of tracesOf(shown, 0).entries()) {
      expect(share).toBeCloseTo(rate ** since, 4);
    }
    return tracesOf(shown, 0).at(-1) as number;
  });
  expect(left).toEqual([...left].sort((a, b) => a - b));
});

test("LevelsOfALogLinearStateWeighTheirBlocks", () => {
  const ratio = 0.7;
  const kept = 0.95;
  const perToken = { logDecay: tokenDecay(kept, 1), levelWeights: levelWeights(ratio) };
  const shown = film(heed, { id: "log_linear", params, perToken });
  expect(shown.rows).toBe((LEVELS - 1) * DIM);
  for (const t of upTo(COUNT)) {
    for (const j of upTo(t + 1)) {
      const level = t === j ? 0 : 32 - Math.clz32(t ^ j);
      const product = row(VECTORS, t).reduce(
        (sum, x, c) => sum + x * (row(VECTORS, j)[c] as number),
        0,
      );
      const wanted = product * ratio ** level * kept ** (t - j);
      expect(Math.abs((shown.weights[t * COUNT + j] as number) - wanted)).toBeLessThan(1e-5);
    }
  }
});

test("BasedIsSoftmaxWhereScoresAreSmall", () => {
  const difference = (size: number) => {
    const recurrence = {
      id: "based",
      params: { scale: 1, causal: true },
      q: VECTORS.map((value) => size * value),
    };
    const [own, soft] = [film(heed, recurrence).weights, softmaxWeights(heed, recurrence)];
    return Math.max(...own.map((value, at) => Math.abs(value - (soft[at] as number))));
  };
  expect(difference(0.5)).toBeLessThan(0.02);
  expect(difference(8)).toBeGreaterThan(0.2);
});
