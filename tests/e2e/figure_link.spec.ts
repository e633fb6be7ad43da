// What was set, pinned and moved in a crafted figure is in its link and in its files; a link from a
// stranger does no harm.
import { readFile } from "node:fs/promises";
import type { Page } from "@playwright/test";
import { test } from "./one_page.js";
import { expect, leave } from "./page.js";

const open = async (page: Page, id: string, fragment = "") => {
  // A new document: another fragment alone would be followed in the old one.
  await leave(page);
  await page.goto(`./mechanisms/${id}.html${fragment}`);
  await expect(page.getByTestId("crafted")).toHaveAttribute("aria-busy", "false");
};

const state = async (page: Page, figure = "crafted") => {
  const event = page.waitForEvent("download");
  await page.getByTestId(figure).getByRole("button", { name: "JSON" }).first().click();
  const file = JSON.parse(await readFile(await (await event).path(), "utf8"));
  expect(file.link).toContain("/mechanisms/");
  return file.state as Record<string, string>;
};

const PINNED = [
  "additive reformer rope longformer block_sparse scaled_dot_product",
  "transformer_xl cope cosine sinusoidal differential grouped_query external perceiver attention_classifier",
].flatMap((ids) => ids.split(" "));

for (const id of PINNED) {
  test(`a pinned cell of ${id} is in its link and its JSON file`, async ({ page }) => {
    await open(page, id);
    const crafted = page.getByTestId("crafted");
    const matrix = crafted.getByRole("application").first();
    await matrix.focus();
    for (const key of ["ArrowDown", "ArrowDown", "ArrowRight", "Enter"]) {
      await page.keyboard.press(key);
    }
    await expect(page).toHaveURL(/figure\.pin=\d+%2C\d+/);
    await page.mouse.move(1, 1);
    await matrix.blur();
    const readout = await crafted.getByTestId("readout").textContent();
    const before = await state(page);
    expect(before.pin).toMatch(/^\d+,\d+$/);
    await open(page, id, new URL(page.url()).hash);
    await expect(crafted.getByTestId("readout")).toHaveText(readout ?? "");
    expect(await state(page)).toEqual(before);
    await matrix.focus();
    await page.keyboard.press("Escape");
    await expect(page).not.toHaveURL(/figure\.pin=\d/);
  });
}

test("the sentence, mask and head of the twelve heads are in their link", async ({ page }) => {
  await open(page, "scaled_dot_product");
  const crafted = page.getByTestId("crafted");
  await crafted.getByRole("textbox").fill("one, zwei, três");
  await crafted.getByLabel("Each word sees only its past").check();
  await crafted.getByRole("radio").nth(2).check({ force: true });
  await crafted.getByRole("button", { name: "By distance" }).click();
  const before = await state(page);
  expect(before).toMatchObject({ text: "one, zwei, três", past: "1", order: "distance" });
  await expect(page).toHaveURL(/figure\.past=1/);
  await open(page, "scaled_dot_product", new URL(page.url()).hash);
  expect(await state(page)).toEqual(before);
  const byDistance = crafted.getByRole("button", { name: "By distance" });
  await expect(byDistance).toHaveAttribute("aria-pressed", "true");
});

test("a cell of what heads add, below their maps, is in its link", async ({ page }) => {
  await open(page, "multi_head");
  const crafted = page.getByTestId("crafted");
  const sum = crafted.getByRole("application", { name: /^What 4 heads add/ });
  await sum.focus();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowRight", "Enter"])
    await page.keyboard.press(key);
  await expect(page).toHaveURL(/figure\.sum-pin=2%2C2/);
  const readout = crafted.getByTestId("readout");
  await expect(readout).toContainText(/To dimension 2 head\s2 adds −?\d\.\d{3}\./);
  const before = await state(page);
  await open(page, "multi_head", new URL(page.url()).hash);
  expect(await state(page)).toEqual(before);
  await sum.focus();
  await page.keyboard.press("Escape");
  await expect(page).not.toHaveURL(/figure\.sum-pin/);
  // The sum stands below four heads: there is no sixth row.
  await open(page, "multi_head", "#v=1&figure.sum-pin=6,1");
  expect(await state(page)).toMatchObject({ "sum-pin": "none" });
});

test("the order of the heads of a mechanism is in its link", async ({ page }) => {
  const panel = page.getByTestId("panel-scaled_dot_product");
  await open(page, "scaled_dot_product");
  await panel.getByRole("button", { name: "In order" }).click();
  await expect(page).toHaveURL(/[#&]order=own/);
  await open(page, "scaled_dot_product", "#v=1&order=own");
  const own = panel.getByRole("button", { name: "In order" });
  await expect(own).toHaveAttribute("aria-pressed", "true");
  await open(page, "scaled_dot_product", "#v=1&order=%3Cb%3E");
  const byEntropy = panel.getByRole("button", { name: "By entropy" });
  await expect(byEntropy).toHaveAttribute("aria-pressed", "true");
});

test("edges, flipped pixels, patterns and kernels are in their links", async ({ page }) => {
  await open(page, "graph", "#v=1&figure.score=gatv2&figure.node=A&figure.edges=AB.AC");
  expect(await state(page)).toEqual({ score: "gatv2", node: "A", edges: "AB.AC" });
  await expect(page.getByTestId("readout").first()).toContainText("A averages 3 nodes");
  await open(page, "hopfield", "#v=1&figure.memory=2&figure.half-hidden=1&figure.flipped=1.7");
  expect(await state(page)).toMatchObject({ memory: "2", "half-hidden": "1", flipped: "1.7" });
  await open(page, "block_sparse", "#v=1&figure.pattern=dilated&figure.tokens=256&figure.reach=9");
  expect(await state(page)).toMatchObject({ pattern: "dilated", tokens: "256", reach: "9" });
  await open(page, "kernel_regression", "#v=1&figure.kernel=boxcar");
  const kernel = page.getByTestId("crafted").getByRole("button", { name: "Boxcar" });
  await expect(kernel).toHaveAttribute("aria-pressed", "true");
});

test("a link from a stranger changes nothing that it does not fit", async ({ page }) => {
  await open(page, "graph", "#v=1&figure.score=cat&figure.node=Z&figure.edges=A1.BB");
  expect(await state(page)).toMatchObject({ score: "gat", node: "E" });
  await open(page, "reformer", "#v=1&figure.pin=99999,1&figure.buckets=1e9&figure.pattern=%3Cb%3E");
  expect(await state(page)).toMatchObject({ pin: "none", buckets: "4" });
  await open(page, "gated", "#v=1&figure.pin=2,9&figure.how-sure-the-gate-is=7");
  expect(await state(page)).toMatchObject({ pin: "none", "how-sure-the-gate-is": "3" });
  await open(page, "scaled_dot_product", "#v=1&figure.map=7,1,1,1&figure.map-pin=5,5");
  await expect(page.getByTestId("long").getByRole("application")).toHaveCount(0);
  await open(page, "rope", `#v=1&figure.position=3&figure.pin=2,2&x=${"x".repeat(5000)}`);
  expect(await state(page)).toMatchObject({ pin: "none", position: "6" });
});

test("between two steps of a control there is nothing that a link could ask for", async ({
  page,
}) => {
  for (const value of ["3.5", "3.01"]) {
    await open(
      page,
      "block_mixture",
      `#v=1&figure.blocks-that-are-read=${value}&figure.query=${value}`,
    );
    expect(await state(page)).toMatchObject({ "blocks-that-are-read": "4", query: "50" });
  }
  await open(
    page,
    "block_mixture",
    "#v=1&figure.blocks-that-are-read=3&figure.keys-in-a-block=0.5",
  );
  expect(await state(page)).toMatchObject({ "blocks-that-are-read": "3", "keys-in-a-block": "1" });
  // Steps of a hundredth, which no binary fraction is.
  await open(page, "gated_linear", "#v=1&figure.what-a-token-leaves-slowest-channel=0.57");
  expect(await state(page)).toMatchObject({ "what-a-token-leaves-slowest-channel": "0.57" });
});

test("a place of the long map is a link: length, middle, how close, pinned cell", async ({
  page,
}) => {
  const place = "#v=1&figure.map=4096%2C3000%2C1200%2C64&figure.map-pin=3001%2C1201";
  await open(page, "scaled_dot_product", place);
  const long = page.getByTestId("long");
  const map = long.getByRole("application");
  await expect(map).toBeInViewport();
  await expect(long.getByTestId("readout")).toContainText(
    /^Query 3001, key 1201: weight [\d.]+\s×/,
  );
  await expect(long.getByTestId("meaning")).toContainText("A pixel is a weight");
  await long.getByLabel("Show as table").check();
  await expect(long.locator("tbody tr").first()).toContainText("query 2969 to 2976");
  await long.getByLabel("Show as table").uncheck();
  const before = await state(page, "long");
  expect(before).toMatchObject({ map: "4096,3000,1200,64", "map-pin": "3001,1201" });
  await map.focus();
  await page.keyboard.press("-");
  await expect(page).toHaveURL(/figure\.map=4096%2C[\d.]+%2C[\d.]+%2C128&/);
  await page.keyboard.press("0");
  await expect(page).toHaveURL(/figure\.map=4096&/);
  await page.keyboard.press("Escape");
  await expect(page).toHaveURL(/figure\.map=4096$/);
});

test("the long map stands alone in a frame whose link names a place of it", async ({ page }) => {
  await page.goto("./mechanisms/scaled_dot_product.html?embed=1#v=1&figure.map=4096");
  await expect(page.getByTestId("long").getByRole("application")).toBeVisible();
  await expect(page.getByTestId("crafted")).toHaveCount(0);
});
