// The figures of scores, positions and normalisers: what a visitor moves, and what is then read. Their
// numbers are compared with plain loops in tests/js/.
import type { Page } from "@playwright/test";
import { test } from "./one_page.js";
import { expect, leave } from "./page.js";

const open = async (page: Page, id: string, fragment = "") => {
  await leave(page);
  await page.goto(`./mechanisms/${id}.html${fragment}`);
  await expect(page.getByTestId("crafted")).toHaveAttribute("aria-busy", "false");
  return { crafted: page.getByTestId("crafted"), readout: page.getByTestId("readout").first() };
};

test("a dragged score moves its weight, by key and by pointer, and is in the link", async ({
  page,
}) => {
  const { crafted, readout } = await open(page, "hard");
  await expect(readout).toContainText("Key 2 with score 1.50 has weight 0.000");
  const second = crafted.getByRole("slider", { name: "Score of key 2" });
  await second.focus();
  for (let step = 0; step < 3; step++) await page.keyboard.press("ArrowUp");
  await expect(readout).toContainText("Key 2 with score 2.25 has weight 1.000");
  await expect(page).toHaveURL(/figure\.scores=0\.5%2C2\.25%2C/);
  const third = crafted.getByRole("slider", { name: "Score of key 3" });
  const box = await third.boundingBox();
  if (!box) throw new Error("the slider is not visible");
  // It stands upright: the top is the largest score.
  expect(box.height).toBeGreaterThan(2 * box.width);
  await page.mouse.click(box.x + box.width / 2, box.y + 4);
  await expect(readout).toContainText("Key 3 with score 3.00 has weight 1.000");
  await expect(page).toHaveURL(/figure\.key=3&figure\.scores=0\.5%2C2\.25%2C3%2C/);
  const [text, address] = [await readout.textContent(), new URL(page.url()).hash];
  const again = await open(page, "hard", address);
  await expect(again.readout).toHaveText(text ?? "");
  await third.focus();
  await page.keyboard.press("Delete");
  await expect(readout).toContainText("Key 3 with score −0.50");
  await crafted.getByRole("button", { name: "As at first" }).click();
  await expect(page).not.toHaveURL(/figure\.scores/);
});

test("scores of a stranger that do not fit change nothing", async ({ page }) => {
  for (const scores of ["9,9,9,9,9,9,9", "1,2", "a,b,c,d,e,f,g"]) {
    const { readout } = await open(page, "sigmoid", `#v=1&figure.scores=${scores}&figure.key=8`);
    await expect(readout).toContainText("Key 2 with score 1.50");
  }
});

test("keys do not compete in sigmoid attention, and are cut off by top-k", async ({ page }) => {
  const { crafted, readout } = await open(page, "sigmoid");
  await crafted.getByRole("button", { name: "None fits" }).click();
  await expect(readout).toContainText(/All weights together are 0\.0\d\d\./);
  const top = await open(page, "top_k");
  await top.crafted.getByRole("slider", { name: "Keys that are kept" }).fill("1");
  await top.crafted.getByLabel("Show as table").check();
  const weights = await top.crafted.locator("tbody tr td:nth-child(3)").allTextContents();
  expect(weights.map(Number)).toEqual([0, 0, 0, 1, 0, 0, 0]);
});

test("t5: a distance tells its bucket, the steps become wider", async ({ page }) => {
  const { crafted, readout } = await open(page, "t5_relative");
  await crafted.getByRole("slider", { name: /^Distance/ }).fill("-7");
  await expect(readout).toContainText("is in bucket 7, alone:");
  await crafted.getByRole("slider", { name: /^Distance/ }).fill("160");
  await expect(readout).toContainText("and farther");
  await crafted.getByRole("button", { name: "The past alone" }).click();
  await crafted.getByRole("slider", { name: "Buckets of the table" }).fill("1");
  await expect(readout).toContainText("8 buckets cover all distances; 3 of them hold a single one");
});

test("cope finds the word that is counted back to", async ({ page }) => {
  const { crafted, readout } = await open(page, "cope");
  await crafted.getByRole("slider", { name: /counted back/ }).fill("3");
  await crafted.getByLabel("Show as table").check();
  const rows = crafted.locator("tbody tr");
  await expect(rows.first().locator("th")).toHaveText("1 the");
  expect(Number(await rows.first().locator("td").last().textContent())).toBeGreaterThan(0.9);
  await expect(readout).toContainText("8 words back, but position 2.");
});

test("a learned table says what it does not have, until it is stretched", async ({ page }) => {
  const { crafted } = await open(page, "learned_position");
  await expect(crafted).toContainText(
    "heed says: positions reach from 0 to 63, but table has 48 rows",
  );
  await crafted.getByRole("button", { name: "Stretch the table" }).click();
  await expect(crafted).toContainText("All 64 positions have a row.");
  await expect(page).toHaveURL(/figure\.positions-beyond-the-table=1/);
});

test("shared keys shrink the cache and change the maps", async ({ page }) => {
  const { crafted, readout } = await open(page, "multi_query");
  await expect(readout).toContainText(
    "8 heads with 1 set of keys and values: the cache takes 128 MiB",
  );
  await crafted.getByRole("slider", { name: "Sets of keys and values" }).fill("3");
  await expect(readout).toContainText("the cache takes 1024 MiB. In head 3, 0.0 % of the weight");
});

test("the plane of keys is walked by key: a longer key is no better for the cosine", async ({
  page,
}) => {
  const { crafted, readout } = await open(page, "cosine");
  await crafted.getByRole("slider", { name: "Direction of the query" }).fill("0");
  const plane = crafted.getByRole("application");
  await plane.focus();
  for (let step = 0; step < 6; step++) await page.keyboard.press("ArrowDown");
  await expect(readout).toContainText(
    "Key (1.4; 0.0), length 1.40, 0° from the query: cosine 2.000",
  );
  await page.keyboard.press("ArrowLeft");
  await expect(readout).toContainText(
    "Key (1.3; 0.0), length 1.30, 0° from the query: cosine 2.000",
  );
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/figure\.pin=21%2C34/);
});
