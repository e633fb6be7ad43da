// The tasks of the site's training page: what is drawn is what the page says, a look is what was learned,
// and the slope of a kernel's width is that of its loss.
import { load as loadHeed } from "heed";
import { load as loadTraining } from "heed/training";
import { describe, expect, test } from "vitest";
import { uniformSource } from "../../web/src/lib/random.js";
import { drawWords, LEN as LETTERS, START } from "../../web/src/training/alignment/sequences.js";
import { alignment } from "../../web/src/training/alignment/session.js";
import {
  answerOf,
  CARDS,
  drawHands,
  LEN,
  nameOf,
  questionOf,
  RANKS,
  rankOf,
  suitOf,
} from "../../web/src/training/cards/hands.js";
import { cards } from "../../web/src/training/cards/session.js";
import { drawSequences, LEN as ROUNDS } from "../../web/src/training/copying/sequences.js";
import { accuracyOf, favourites } from "../../web/src/training/logits.js";
import { ModelSession } from "../../web/src/training/model_session.js";
import { KernelRegression } from "../../web/src/training/regression/kernel.js";
import { COUNT, drawSamples, explained, GRID } from "../../web/src/training/regression/samples.js";
import { RegressionSession } from "../../web/src/training/regression/session.js";
import { variants as kernels } from "../../web/src/training/regression/variants.js";
import type { Look, Session } from "../../web/src/training/session.js";
import { FIRST_SHOWN, fragmentOf, settingsOf, shownOf } from "../../web/src/training/settings.js";

const heed = await loadHeed({ threads: 1 });
const training = await loadTraining({ threads: 1, simd: "plain" });

const rowsOf = (ids: ArrayLike<number>, len: number): number[][] =>
  Array.from({ length: ids.length / len }, (_, row) =>
    Array.from({ length: len }, (_unused, i) => ids[row * len + i] as number),
  );

function trained(session: Session): Look {
  for (let step = 0; step < session.steps; step++) expect(session.step().diverged).toBe(false);
  const look = session.look();
  session.dispose();
  return look;
}

describe("what is drawn", () => {
  test("a round repeats, and its first letters have no target", () => {
    const { tokens, targets } = drawSequences(50, uniformSource(3));
    const wanted = rowsOf(targets, ROUNDS);
    rowsOf(tokens, ROUNDS).forEach((row, n) => {
      const length = row.indexOf(row[0] as number, 1);
      expect(length).toBeGreaterThanOrEqual(5);
      expect(length).toBeLessThanOrEqual(10);
      expect(new Set(row).size).toBe(length);
      row.forEach((letter, i) => {
        expect(letter).toBe(row[i % length]);
        expect(wanted[n]?.[i]).toBe(i + 1 < length ? -1 : row[(i + 1) % length]);
      });
    });
  });

  test.each(["reverse", "sort"] as const)("words to %s", (order) => {
    const { source, tokens, targets } = drawWords(50, order, uniformSource(3));
    const [read, before] = [rowsOf(source, LETTERS), rowsOf(tokens, LETTERS)];
    rowsOf(targets, LETTERS).forEach((written, n) => {
      const word = read[n] as number[];
      expect(new Set(word).size).toBe(LETTERS);
      const wanted = order === "reverse" ? [...word].reverse() : [...word].sort((a, b) => a - b);
      expect(written).toEqual(wanted);
      expect(before[n]).toEqual([START, ...written.slice(0, -1)]);
    });
  });

  test("a hand has the card that is asked for, once, and its suit is the answer", () => {
    const { tokens, targets } = drawHands(50, uniformSource(3));
    const wanted = rowsOf(targets, LEN);
    rowsOf(tokens, LEN).forEach((row, n) => {
      const [hand, question] = [row.slice(0, CARDS), row[CARDS] as number];
      expect(new Set(hand.map(rankOf)).size).toBe(CARDS);
      const asked = hand.filter((card) => questionOf(rankOf(card)) === question);
      expect(asked).toHaveLength(1);
      expect(wanted[n]?.slice(0, CARDS)).toEqual(hand.map(() => -1));
      expect(wanted[n]?.[CARDS]).toBe(answerOf(suitOf(asked[0] as number)));
    });
  });

  test("cards, questions and answers have different names", () => {
    const { tokens } = drawHands(RANKS.length, uniformSource(3), (hand) => hand);
    const questions = rowsOf(tokens, LEN).map((row) => nameOf(row[CARDS] as number));
    expect(questions).toEqual(RANKS.map((rank) => `${rank}?`));
    const names = Array.from({ length: 52 + 13 + 4 }, (_, token) => nameOf(token));
    expect(new Set(names).size).toBe(names.length);
  });

  test("samples ascend, one in each part", () => {
    const { x } = drawSamples(COUNT, uniformSource(3), () => 0);
    const parts = Array.from(x, (place) => Math.floor(((place + 1) / 2) * COUNT));
    expect(parts).toEqual(parts.map((_, i) => i));
  });
});

test("an address says what differs, and nothing that is not there", () => {
  expect(fragmentOf(settingsOf(""), FIRST_SHOWN)).toBe("");
  for (const fragment of [
    "#task=sort&mechanism=sigmoid&seed=7",
    "#task=regression",
    "#mechanism=window",
    "#task=cards&plot=accuracy&head=2&pin=3%2C4",
  ]) {
    expect(fragmentOf(settingsOf(fragment), shownOf(fragment))).toBe(fragment);
  }
  expect(shownOf("#plot=fortune&head=0&pin=1,-2")).toEqual(FIRST_SHOWN);
  expect(shownOf("#pin=1")).toEqual(FIRST_SHOWN);
  // Of a version that this page does not know, and longer than any link of ours.
  expect(settingsOf("#v=2&task=sort")).toEqual(settingsOf(""));
  expect(settingsOf(`#task=sort&x=${"1".repeat(600)}`)).toEqual(settingsOf(""));
  expect(settingsOf("#v=1&task=sort").task).toBe("sort");
  expect(settingsOf("#task=cards&mechanism=boxcar")).toEqual(settingsOf("#task=cards"));
  expect(settingsOf("#task=__proto__&seed=1e9")).toEqual(settingsOf(""));
});

test("accuracy counts only what can be known", () => {
  expect(accuracyOf([1, 2, 3], [1, -1, 0])).toBe(0.5);
  expect(favourites(Float32Array.of(0, 2, 1, 5, 4, 3), 3)).toEqual([1, 0]);
});

test("a mean explains nothing of a curve, the curve all", () => {
  const truth = GRID.map((x) => Math.sin(4 * x) + x / 2);
  expect(explained(truth)).toBeCloseTo(1, 6);
  const mean = truth.reduce((a, b) => a + b) / truth.length;
  expect(explained(GRID.map(() => mean))).toBeCloseTo(0, 6);
});

/** The leave-one-out loss of a gaussian kernel in plain float64 loops. */
function lossInFloat64(x: Float32Array, y: Float32Array, width: number, own: boolean): number {
  let loss = 0;
  x.forEach((place, i) => {
    let [sum, mass] = [0, 0];
    x.forEach((other, j) => {
      if (i === j && !own) return;
      const weight = Math.exp(-(((place - other) / width) ** 2) / 2);
      sum += weight * (y[j] as number);
      mass += weight;
    });
    loss += (sum / mass - (y[i] as number)) ** 2 / x.length;
  });
  return loss;
}

describe("the width of a kernel", () => {
  const uniform = uniformSource(5);
  const samples = drawSamples(COUNT, uniform, () => uniform() - 0.5);

  test.each(["gaussian", "itself"])("%s: loss and slope are those of float64 loops", (id) => {
    const variant = kernels.of(id);
    const model = new KernelRegression(heed, variant, samples);
    const at = (width: number) =>
      lossInFloat64(samples.x, samples.y, width, variant.seesItself === true);
    for (const width of [0.05, 0.3, 1]) {
      const { loss, slope } = model.slope(width);
      expect(loss).toBeCloseTo(at(width), 5);
      const [more, less] = [at(width * 1.001), at(width / 1.001)];
      expect(slope).toBeCloseTo((more - less) / (2 * Math.log(1.001)), 4);
    }
  });

  test("dot: the slope through the queries is that of the loss", () => {
    const model = new KernelRegression(heed, kernels.of("dot"), samples);
    const [more, less] = [model.slope(0.505).loss, model.slope(0.495).loss];
    expect(model.slope(0.5).slope).toBeCloseTo((more - less) / Math.log(0.505 / 0.495), 3);
  });

  test("no sample sees itself, but where it may", () => {
    for (const { id, seesItself } of kernels.all) {
      const weights = new KernelRegression(heed, kernels.of(id), samples).weights(0.3);
      const own = Array.from({ length: COUNT }, (_, i) => weights[i * COUNT + i] as number);
      expect(own.some((weight) => weight > 0)).toBe(seesItself === true);
    }
  });

  test("is learned: the curve is found from both sides, and lost by who sees itself", () => {
    const looks = new Map(
      kernels.all.map(({ id }) => [id, trained(new RegressionSession(heed, id, 1))]),
    );
    const [gaussian, narrow, itself] = ["gaussian", "narrow", "itself"].map((id) => looks.get(id));
    expect(gaussian?.accuracy).toBeGreaterThan(0.95);
    expect(narrow?.fit?.width).toBeCloseTo(gaussian?.fit?.width as number, 3);
    expect(itself?.fit?.width).toBeLessThan(0.02);
    expect(itself?.heldOut).toBeGreaterThan(1.1 * (gaussian?.heldOut as number));
    expect(looks.get("average")?.accuracy).toBeLessThan(0.1);
    expect(looks.get("dot")?.accuracy).toBeLessThan(0.8);
  });
});

describe("what is learned", () => {
  test.each(["reverse", "sort"] as const)(
    "to %s: the decoder looks at the letter it writes",
    (order) => {
      const look = trained(new ModelSession(training, alignment(order, "softmax"), 1));
      expect(look.accuracy).toBeGreaterThanOrEqual(0.97);
      const cross = look.heads[0] as Float32Array;
      const found = look.guesses.filter((letter, row) => {
        const weights = cross.subarray(row * LETTERS, (row + 1) * LETTERS);
        return look.tokens[weights.indexOf(Math.max(...weights))] === letter;
      });
      expect(found.length).toBeGreaterThanOrEqual(8);
    },
  );

  test("to ask: attention pooling finds the card", () => {
    const look = trained(new ModelSession(training, cards("softmax"), 1));
    expect(look.accuracy).toBeGreaterThanOrEqual(0.98);
    // Row by row the rank that is asked for: what the heads give together peaks on the diagonal.
    const [together] = look.heads as [Float32Array];
    const found = RANKS.filter((_, row) => {
      const given = together.subarray(row * RANKS.length, (row + 1) * RANKS.length);
      return given.indexOf(Math.max(...given)) === row;
    });
    expect(found.length).toBeGreaterThanOrEqual(11);
  });
});
