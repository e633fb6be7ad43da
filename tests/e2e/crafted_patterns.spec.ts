// Crafted pages of which keys a query sees: tables against plain float64 loops made here. Inputs are the pages'
// own; nothing that computes is shared.
import {
  directed,
  draw,
  FEATURES,
  LINKS,
  NODES,
  QUERIES,
} from "../../web/src/mechanisms/graph/network.js";
import { AROUND, POINTS, rotationsOf, TOKENS } from "../../web/src/mechanisms/reformer/buckets.js";
import { dot, readFigure, rowOf, slide, toNumber } from "./crafted_page.js";
import { test } from "./one_page.js";
import { expect } from "./page.js";

test("longformer and block-sparse: each query sees the keys of the rule", async ({ page }) => {
  await page.goto("./mechanisms/longformer.html");
  await slide(page, "Reach on either side", 3);
  await slide(page, "Dilation", 2);
  const globals = [0, 32];
  const sees = (i: number, j: number) =>
    globals.includes(i) || globals.includes(j) || (Math.abs(i - j) <= 6 && (i - j) % 2 === 0);
  const counts = (rule: (i: number, j: number) => boolean) =>
    Array.from(
      { length: 64 },
      (_, i) => Array.from({ length: 64 }, (_, j) => rule(i, j)).filter(Boolean).length,
    );
  expect((await readFigure(page)).map((row) => Number(row[1]))).toEqual(counts(sees));

  await page.goto("./mechanisms/block_sparse.html");
  const strided = (i: number, j: number) => j <= i && (i - j < 8 || (i - j) % 8 === 0);
  expect((await readFigure(page)).map((row) => Number(row[1]))).toEqual(counts(strided));
});

test("bigbird at 4096 tokens: the picture is drawn, looked at closer and read by key", async ({
  page,
}) => {
  await page.goto("./mechanisms/bigbird.html");
  await page.getByRole("button", { name: "4096 tokens" }).click();
  const crafted = page.getByTestId("crafted");
  const map = crafted.getByRole("application", { name: /4096 queries and 4096 keys/ });
  await expect(crafted).toContainText("4096 × 4096 of 4096 × 4096 cells");
  await map.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("+");
  await expect(crafted).toContainText("2048 × 2048 of 4096 × 4096 cells");
  await expect(crafted.getByTestId("readout")).toContainText("Query 1 sees 4096 keys: 1 to 4096.");
  await page.keyboard.press("0");
  await expect(crafted).toContainText("4096 × 4096 of");
});

test("windows of an image: shifted ones are smaller at the border, neighbourhoods never", async ({
  page,
}) => {
  await page.goto("./mechanisms/swin_window.html");
  await slide(page, "Shift of the windows", 1);
  // Windows of 4 begin at 1: the pixel before them is alone on its axis, three are left at the end.
  const group = (at: number) => Math.floor((at + 16 - 1) / 4);
  const wrapped = (at: number) => (at < 1 ? -1 : group(at));
  const alike = (at: number) =>
    Array.from({ length: 16 }, (_, other) => other).filter(
      (other) => wrapped(other) === wrapped(at),
    ).length;
  const shifted = await readFigure(page);
  shifted.forEach((row, y) => {
    row.slice(1).forEach((count, x) => {
      expect(Number(count), `row ${y}, column ${x}`).toBe(alike(y) * alike(x));
    });
  });
  await page.goto("./mechanisms/neighborhood.html");
  await slide(page, "Side of the window", 7);
  const counts = (await readFigure(page)).flatMap((row) => row.slice(1).map(Number));
  expect(new Set(counts)).toEqual(new Set([49]));
});

test("reformer: tokens see those that share a bucket with them", async ({ page }) => {
  await page.goto("./mechanisms/reformer.html");
  await slide(page, "Rounds of hashing", 2);
  await slide(page, "Buckets", 6);
  const rotations = rotationsOf({ rounds: 2, buckets: 6, seed: 1 });
  const buckets = Array.from({ length: TOKENS }, (_, t) =>
    [0, 1].map((round) => {
      const [x, y] = rowOf(POINTS.data, t, 2) as [number, number];
      const half = [0, 1, 2].map(
        (b) =>
          x * (rotations[round * 6 + b] as number) + y * (rotations[round * 6 + 3 + b] as number),
      );
      const all = [...half, ...half.map((value) => -value)];
      return all.indexOf(Math.max(...all));
    }),
  );
  const meets = (a: number, b: number) =>
    buckets[a]?.some((bucket, round) => bucket === buckets[b]?.[round]);
  const rows = await readFigure(page);
  expect(rows.map((row) => Number(row[0]) - 1)).toEqual(AROUND);
  for (const [at, row] of rows.entries()) {
    const token = AROUND[at] as number;
    const others = AROUND.filter((other) => other !== token && meets(token, other)).length;
    // A token that meets another does not look at itself.
    expect(Number(row[3]), `token ${token + 1}`).toBe(Math.max(1, others));
  }
});

test("graph: the softmax over the edges that arrive, and an edge that is taken away", async ({
  page,
}) => {
  const vector = draw("vector", 8);
  const leaky = (x: number) => (x < 0 ? 0.2 * x : x);
  const truth = (links: typeof LINKS) =>
    directed(links)
      .map(([source, target]) => {
        const q = rowOf(QUERIES.data, target, 4);
        const k = rowOf(FEATURES.data, source, 4);
        return {
          source,
          target,
          score: leaky(dot(vector.slice(0, 4), q) + dot(vector.slice(4), k)),
        };
      })
      .map(({ source, target, score }, _, all) => {
        const own = all
          .filter((edge) => edge.target === target)
          .map((edge) => Math.exp(edge.score));
        return {
          source,
          target,
          weight: Math.exp(score) / own.reduce((sum, value) => sum + value, 0),
        };
      });
  const letters = "ABCDEFGHIJ".slice(0, NODES);
  const check = async (links: typeof LINKS) => {
    const rows = await readFigure(page);
    const wanted = truth(links);
    expect(rows).toHaveLength(wanted.length);
    for (const [target = "", source = "", weight = ""] of rows) {
      const own = wanted.find(
        (edge) => letters[edge.target] === target && letters[edge.source] === source,
      );
      expect(Math.abs(toNumber(weight) - (own?.weight ?? Number.NaN))).toBeLessThan(1e-4);
    }
  };
  await page.goto("./mechanisms/graph.html");
  await check(LINKS);
  // Row A, column B: the first of the links.
  await page.getByTestId("crafted").getByRole("application").focus();
  for (const key of ["ArrowDown", "ArrowRight", "Enter"]) await page.keyboard.press(key);
  await check(LINKS.slice(1));
  await page.getByRole("button", { name: "Node F" }).click();
  await expect(page.getByTestId("crafted").getByTestId("readout")).toContainText("F averages");
});
