// Crafted pages of states, features and memories: tables against plain float64 loops made here. Inputs are the
// pages' own; nothing that computes is shared.
import { TOKENS as PAIRS, personKeys } from "../../web/src/mechanisms/delta_rule/memory.js";
import { damaged, MEMORIES, NAMES } from "../../web/src/mechanisms/hopfield/images.js";
import { K as WORD_K, Q as WORD_Q, WORDS } from "../../web/src/mechanisms/linear/state.js";
import { dot, openTable, readFigure, rowOf, slide, softmax, toNumber } from "./crafted_page.js";
import { test } from "./one_page.js";
import { expect } from "./page.js";

test("delta rule: the state after each token, erased and written", async ({ page }) => {
  for (const [overlap, beta] of [
    [0, 1],
    [0.5, 0.75],
  ] as const) {
    await page.goto("./mechanisms/delta_rule.html");
    await slide(page, "After token", PAIRS.length - 1);
    await slide(page, "How alike the keys are", overlap);
    await slide(page, "How much is replaced", beta);
    const keys = Array.from({ length: 4 }, (_, p) => rowOf(personKeys(overlap), p, 4));
    const delta = Array.from({ length: 4 }, () => [0, 0, 0, 0]);
    const added = Array.from({ length: 4 }, () => [0, 0, 0, 0]);
    for (const [person, colour] of PAIRS) {
      const key = keys[person] as number[];
      const answer = [0, 1, 2, 3].map((c) =>
        dot(
          key,
          delta.map((row) => row[c] as number),
        ),
      );
      delta.forEach((row, r) => {
        row.forEach((_, c) => {
          const value = c === colour ? 1 : 0;
          row[c] = (row[c] as number) + beta * (key[r] as number) * (value - (answer[c] as number));
          const sum = added[r] as number[];
          sum[c] = (sum[c] as number) + (key[r] as number) * value;
        });
      });
    }
    const rows = await readFigure(page);
    expect(rows).toHaveLength(4);
    rows.forEach((row, person) => {
      [delta, added].forEach((state, kind) => {
        [0, 1, 2, 3].forEach((c) => {
          const truth = dot(
            keys[person] as number[],
            state.map((line) => line[c] as number),
          );
          expect(Math.abs(toNumber(row[2 + 4 * kind + c] as string) - truth)).toBeLessThan(1e-3);
        });
      });
    });
  }
});

test("linear attention and retention: the weights that the state stands for", async ({ page }) => {
  const feature = (row: number[]) => row.map((x) => (x > 0 ? x + 1 : Math.exp(x)));
  const q = WORDS.map((_, i) => rowOf(WORD_Q, i, 8));
  const k = WORDS.map((_, j) => rowOf(WORD_K, j, 8));
  const cases = [
    {
      id: "linear",
      weights: (i: number) => {
        const scores = k.slice(0, i + 1).map((key) => dot(feature(q[i] as number[]), feature(key)));
        const sum = scores.reduce((total, score) => total + score, 0);
        return scores.map((score) => score / sum);
      },
    },
    {
      id: "retention",
      weights: (i: number) =>
        k
          .slice(0, i + 1)
          .map((key, j) => (0.8 ** (i - j) * dot(q[i] as number[], key)) / Math.sqrt(8)),
    },
  ];
  for (const { id, weights } of cases) {
    await page.goto(`./mechanisms/${id}.html`);
    await slide(page, "Read so far", WORDS.length - 1);
    const rows = await readFigure(page);
    expect(rows).toHaveLength(WORDS.length);
    rows.forEach((row, i) => {
      weights(i).forEach((wanted, j) => {
        expect(Math.abs(toNumber(row[j + 1] as string) - wanted), `${id} ${i} ${j}`).toBeLessThan(
          2e-4,
        );
      });
    });
  }
});

test("performer: the error falls like 1 / √m and grows with the size of q and k", async ({
  page,
}) => {
  const errors = (rows: string[][]) => rows.map((row) => toNumber(row[1] as string));
  const usual = errors(await openTable(page, "performer"));
  const [first, last] = [usual[2] as number, usual.at(-1) as number];
  // From 16 to 1024 features: a factor of 8, within what four draws can tell.
  expect(first / last).toBeGreaterThan(4);
  expect(first / last).toBeLessThan(16);
  await slide(page, "Size of queries and keys", 1);
  const large = errors(await readFigure(page));
  expect(large.at(-1) as number).toBeGreaterThan(2 * last);
});

test("hopfield: weights of the memories, and a pixel that is flipped by key", async ({ page }) => {
  await page.goto("./mechanisms/hopfield.html");
  const crafted = page.getByTestId("crafted");
  const weights = (flipped: Set<number>) => {
    const start = damaged({ memory: 0, noise: 0.6, halfHidden: false }, flipped);
    return softmax(MEMORIES.map((memory) => 0.01 * dot(memory, start)));
  };
  const check = async (flipped: Set<number>) => {
    const rows = await readFigure(page);
    expect(rows.map((row) => row[0])).toEqual(NAMES);
    rows.forEach((row, at) => {
      expect(Math.abs(toNumber(row[1] as string) - (weights(flipped)[at] as number))).toBeLessThan(
        1e-4,
      );
    });
  };
  await check(new Set());
  await crafted.getByRole("application").focus();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowRight", "Enter"])
    await page.keyboard.press(key);
  await check(new Set([17]));
  await slide(page, "Inverse temperature", 60);
  await slide(page, "After step", 3);
  await expect(crafted.getByTestId("readout")).toContainText("100 % of the pixels are right");
});
