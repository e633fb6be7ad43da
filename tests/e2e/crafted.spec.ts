// The crafted pages show what heed computed: their tables against plain float64 loops made here.
// Inputs are the pages' own; nothing that computes is shared.
import type { Page } from "@playwright/test";
import { HEAD_DIM, projectTokens } from "../../web/src/lib/vectors.js";
import { GRID, START } from "../../web/src/mechanisms/additive/surface.js";
import { SCORES as CAPPED } from "../../web/src/mechanisms/attention/softcap.js";
import { TOKENS as PAIRS, personKeys } from "../../web/src/mechanisms/delta_rule/memory.js";
import {
  DIM as FLASH_DIM,
  KEYS,
  K as LONG_K,
  Q as LONG_Q,
} from "../../web/src/mechanisms/flash/tiles.js";
import {
  directed,
  draw,
  FEATURES,
  LINKS,
  NODES,
  QUERIES,
} from "../../web/src/mechanisms/graph/network.js";
import { damaged, MEMORIES, NAMES } from "../../web/src/mechanisms/hopfield/images.js";
import { K as WORD_K, Q as WORD_Q, WORDS } from "../../web/src/mechanisms/linear/state.js";
import { AROUND, POINTS, rotationsOf, TOKENS } from "../../web/src/mechanisms/reformer/buckets.js";
import { KEY, QUERY } from "../../web/src/mechanisms/rope/turning.js";
import { SCORES } from "../../web/src/mechanisms/sink/row.js";
import { FACTORS, SCORES as LEVELS } from "../../web/src/mechanisms/sparsemax/sharpness.js";
import { expect, test } from "./page.js";
import { CRAFTED } from "./pages.js";

const toNumber = (text: string) => Number(text.replace("−", "-"));

/** Opens a crafted page, waits for its numbers, and returns the rows of its table. */
async function openTable(page: Page, id: string): Promise<string[][]> {
  await page.goto(`./mechanisms/${id}.html`);
  return readFigure(page);
}

async function readFigure(page: Page): Promise<string[][]> {
  const crafted = page.getByTestId("crafted");
  const toggle = crafted.getByLabel("Show as table").first();
  await expect(crafted).toHaveAttribute("aria-busy", "false");
  await toggle.check();
  await expect(crafted.locator("tbody tr").first()).toBeVisible();
  await expect(crafted.getByText("Loading heed")).toHaveCount(0);
  const rows = await crafted
    .locator("figure table tbody tr")
    .evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll("th, td")].map((cell) => cell.textContent ?? "")),
    );
  await toggle.uncheck();
  return rows;
}

/** Drags nothing: sets a slider of the crafted part by its name. */
const slide = (page: Page, name: string, value: number) =>
  page.getByTestId("crafted").getByRole("slider", { name }).fill(String(value));

const dot = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((sum, value, at) => sum + value * (b[at] as number), 0);

const rowOf = (all: ArrayLike<number>, row: number, width: number) =>
  Array.from({ length: width }, (_, at) => all[row * width + at] as number);

function softmax(scores: readonly number[]): number[] {
  const top = Math.max(...scores);
  const exps = scores.map((score) => Math.exp(score - top));
  const sum = exps.reduce((total, value) => total + value, 0);
  return exps.map((value) => value / sum);
}

test("every crafted page agrees with the float64 reference", async ({ page }) => {
  test.setTimeout(300_000); // all of them
  for (const link of CRAFTED) {
    await page.goto(link);
    const crafted = page.getByTestId("crafted");
    const figures = crafted.getByTestId(/^(agreement|kernel-error)$/);
    // The patterns are pictures of rules: they have no numbers to compare.
    if (/longformer|bigbird|block_sparse|swin_window|neighborhood/.test(link)) {
      await expect(crafted.getByTestId("readout")).toContainText(/pairs exist|exist\.$/);
    } else {
      await expect(figures, link).toHaveText(/^(0|\d\.\d\s×\s10⁻([⁶-⁹]|[⁰¹²³⁴-⁹]{2}))$/);
    }
  }
});

test("flash: running maximum, rescale and sum of every tile", async ({ page }) => {
  const rows = await openTable(page, "flash");
  const scores = Array.from(
    { length: KEYS },
    (_, j) => 0.25 * dot(LONG_Q.data, rowOf(LONG_K.data, j, FLASH_DIM)),
  );
  let [max, sum] = [Number.NEGATIVE_INFINITY, 0];
  rows.forEach((row, tile) => {
    const own = scores.slice(tile * 256, (tile + 1) * 256);
    const next = Math.max(max, ...own);
    sum =
      sum * (tile === 0 ? 0 : Math.exp(max - next)) +
      own.reduce((s, x) => s + Math.exp(x - next), 0);
    max = next;
    expect(Math.abs(toNumber(row[2] as string) - max)).toBeLessThan(1e-3);
    expect(Math.abs(toNumber(row[4] as string) - sum)).toBeLessThan(1e-2);
  });
  expect(rows).toHaveLength(KEYS / 256);
  // With large scores the sum without a maximum leaves float32, the kernel's does not.
  await slide(page, "Scale", 12);
  const large = await readFigure(page);
  expect(large.at(-1)?.[5]).toBe("overflow");
  expect(toNumber(large.at(-1)?.[4] as string)).toBeGreaterThanOrEqual(1);
});

test("flash: scrubbing and clicking choose the tile that is read out", async ({ page }) => {
  await page.goto("./mechanisms/flash.html");
  const crafted = page.getByTestId("crafted");
  await slide(page, "After tile", 0);
  await expect(crafted.getByTestId("readout")).toContainText(
    "Tile 1, keys 1 to 256: the first maximum is",
  );
  await crafted.getByRole("button", { name: "Forward" }).click();
  await expect(crafted.getByTestId("readout")).toContainText("Tile 2, keys 257 to 512");
  await slide(page, "After tile", 7);
  await expect(crafted.getByRole("button", { name: "Forward" })).toBeDisabled();
});

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

test("additive: the surface is v tanh(W_q q + W_k k + b), one unit or two", async ({ page }) => {
  for (const units of [1, 2]) {
    await page.goto("./mechanisms/additive.html");
    await page.getByRole("button", { name: units === 1 ? "One unit" : "Two units" }).click();
    await slide(page, "Bias", 1);
    const rows = await readFigure(page);
    rows.forEach((row, i) => {
      GRID.forEach((key, j) => {
        const sum = START.queryWeight * (GRID[i] as number) + START.keyWeight * key;
        const second = units === 2 ? Math.tanh(sum - 1) : 0;
        const truth = START.vector * (Math.tanh(sum + 1) - second);
        expect(Math.abs(toNumber(row[j + 1] as string) - truth)).toBeLessThan(1e-3);
      });
    });
    expect(rows).toHaveLength(GRID.length);
  }
});

test("exact attention: what softcap makes of scores and weights", async ({ page }) => {
  await page.goto("./mechanisms/attention.html");
  await slide(page, "Cap", 20);
  const rows = await readFigure(page);
  const bent = CAPPED.map((score) => 20 * Math.tanh(score / 20));
  const weights = softmax(bent);
  const plain = softmax(CAPPED);
  expect(rows).toHaveLength(CAPPED.length);
  rows.forEach((row, key) => {
    expect(Math.abs(toNumber(row[2] as string) - (bent[key] as number))).toBeLessThan(1e-3);
    expect(Math.abs(toNumber(row[3] as string) - (weights[key] as number))).toBeLessThan(1e-4);
    expect(Math.abs(toNumber(row[4] as string) - (plain[key] as number))).toBeLessThan(1e-4);
  });
});

test("sink and softmax off by one: weights and what goes nowhere", async ({ page }) => {
  for (const [id, shift, logit] of [
    ["sink", -1, 1.5],
    ["softmax1", 2, 0],
  ] as const) {
    await page.goto(`./mechanisms/${id}.html`);
    await slide(page, "Added to every score", shift);
    if (id === "sink") await slide(page, "Logit of the sink", logit);
    const rows = await readFigure(page);
    const exps = SCORES.map((score) => Math.exp(score + shift));
    const total = Math.exp(logit) + exps.reduce((sum, value) => sum + value, 0);
    const wanted = [...exps, Math.exp(logit)].map((value) => value / total);
    expect(rows).toHaveLength(wanted.length);
    rows.forEach((row, at) => {
      expect(Math.abs(toNumber(row[3] as string) - (wanted[at] as number))).toBeLessThan(1e-4);
    });
  }
});

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

test("scaled dot product: heads are softmax of q·k, in the order of their entropy", async ({
  page,
}) => {
  await page.goto("./mechanisms/scaled_dot_product.html");
  await page.getByLabel("Sentence, up to 24 tokens").fill("one two three");
  await page.getByRole("radio", { name: /The word before, T = 2/ }).check({ force: true });
  const { q, k } = projectTokens(["one", "two", "three"]);
  const rows = await readFigure(page);
  const at = 3 * HEAD_DIM;
  rows.forEach((row, i) => {
    const scores = [0, 1, 2].map(
      (j) => dot(rowOf(q.subarray(at), i, HEAD_DIM), rowOf(k.subarray(at), j, HEAD_DIM)) / 4 / 2,
    );
    softmax(scores).forEach((wanted, j) => {
      expect(Math.abs(toNumber(row[j + 1] as string) - wanted)).toBeLessThan(1e-4);
    });
  });
  const bits = async () =>
    (
      await page
        .getByTestId("crafted")
        .getByRole("radiogroup", { name: "Heads" })
        .getByText(/ bits$/)
        .allTextContents()
    ).map(parseFloat);
  const sorted = await bits();
  expect(sorted).toHaveLength(12);
  expect(sorted).toEqual([...sorted].sort((a, b) => a - b));
  await page.getByTestId("crafted").getByRole("button", { name: "In order" }).click();
  expect(await bits()).not.toEqual(sorted);
});

/** The threshold t for which the sum of weight(score - t) is 1, by bisection. */
function threshold(scores: readonly number[], weight: (above: number) => number): number {
  let [low, high] = [Math.min(...scores) - 2, Math.max(...scores)];
  for (let step = 0; step < 100; step++) {
    const middle = (low + high) / 2;
    const sum = scores.reduce((total, score) => total + weight(Math.max(0, score - middle)), 0);
    if (sum > 1) low = middle;
    else high = middle;
  }
  return low;
}

test("sparsemax and 1.5-entmax: weights above a threshold, exactly zero below", async ({
  page,
}) => {
  for (const [id, half, power] of [
    ["sparsemax", 1, 1],
    ["entmax15", 0.5, 2],
  ] as const) {
    await page.goto(`./mechanisms/${id}.html`);
    await slide(page, "Scores multiplied by", 38);
    const scores = LEVELS.map((score) => half * (FACTORS[38] as number) * score);
    const weight = (above: number) => above ** power;
    const limit = threshold(scores, weight);
    const wanted = scores.map((score) => weight(Math.max(0, score - limit)));
    expect(wanted.filter((value) => value === 0).length).toBeGreaterThan(0);
    const rows = await readFigure(page);
    expect(rows).toHaveLength(LEVELS.length);
    rows.forEach((row, at) => {
      expect(Math.abs(toNumber(row[2] as string) - (wanted[at] as number)), id).toBeLessThan(1e-4);
    });
  }
});

test("rope: the product depends on the distance, wherever the tokens stand", async ({ page }) => {
  const pairs = [0, 1, 2, 3];
  const product = (distance: number) =>
    pairs.reduce((sum, pair) => {
      const angle = distance * 100 ** (-pair / 4);
      const [qx, qy, kx, ky] = [QUERY[pair], QUERY[pair + 4], KEY[pair], KEY[pair + 4]] as number[];
      const [x, y] = [
        (qx as number) * Math.cos(angle) - (qy as number) * Math.sin(angle),
        (qx as number) * Math.sin(angle) + (qy as number) * Math.cos(angle),
      ];
      return sum + x * (kx as number) + y * (ky as number);
    }, 0);
  await page.goto("./mechanisms/rope.html");
  for (const offset of [0, 500]) {
    await slide(page, "Move all positions", offset);
    const rows = await readFigure(page);
    expect(rows).toHaveLength(48);
    rows.forEach((row, distance) => {
      expect(Math.abs(toNumber(row[1] as string) - product(distance))).toBeLessThan(3e-4);
    });
  }
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
