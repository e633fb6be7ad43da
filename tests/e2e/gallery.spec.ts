// The gallery: every row of the list as a card with a picture that heed computed, found by family, by
// cost and by words, from an address that says what was asked.
import { readMechanisms } from "../../scripts/docs_table.mjs";
import { test } from "./one_page.js";
import { expect } from "./page.js";

const ROWS = readMechanisms();
const ids = (rows: typeof ROWS) => rows.map(({ id }) => `card-${id}`).sort();

test("there is a card for every mechanism of the list, and its link opens its page", async ({
  page,
}) => {
  await page.goto("./gallery.html");
  const cards = page.getByTestId(/^card-/);
  await expect(cards).toHaveCount(ROWS.length);
  const shown = await cards.evaluateAll((all) =>
    all.map((card) => (card as HTMLElement).dataset.testid),
  );
  expect(shown.sort()).toEqual(ids(ROWS));
  await page.getByTestId("card-rope").getByRole("link").click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Rotary position embedding");
  await expect(page).toHaveURL(/\/mechanisms\/rope\.html$/);
});

test("pictures are computed when their card comes into sight, and differ", async ({ page }) => {
  await page.goto("./gallery.html");
  const first = page.getByTestId("card-scaled_dot_product").locator("canvas");
  await expect(first).toBeVisible();
  const last = page.getByTestId("card-learned_position");
  await expect(last.locator("canvas")).toHaveCount(0);
  await last.scrollIntoViewIfNeeded();
  await expect(last.locator("canvas")).toBeVisible();
  const pictures = await page
    .locator("article canvas")
    .evaluateAll((all) => all.map((canvas) => (canvas as HTMLCanvasElement).toDataURL()));
  expect(pictures.length).toBeGreaterThan(8);
  expect(new Set(pictures).size).toBeGreaterThan(0.8 * pictures.length);
});

test("family, cost and words narrow the list together, and the counts agree", async ({ page }) => {
  await page.goto("./gallery.html");
  const cards = page.getByTestId(/^card-/);
  const shown = async () =>
    (
      await cards.evaluateAll((all) => all.map((card) => (card as HTMLElement).dataset.testid))
    ).sort();
  await page.getByRole("button", { name: /^Recurrent/ }).click();
  const recurrent = ROWS.filter(({ family }) => family === "recurrent");
  expect(await shown()).toEqual(ids(recurrent));
  await expect(page.getByRole("button", { name: `Recurrent ${recurrent.length}` })).toHaveAttribute(
    "aria-pressed",
    "true",
  );
  await page.getByRole("button", { name: /^All/ }).click();
  await page.getByLabel("Time grows").selectOption("linear");
  const linear = ROWS.filter(({ cost }) => cost === "linear");
  expect(await shown()).toEqual(ids(linear));
  await page.getByLabel("Search").fill("window 2020");
  const words = linear.filter((row) =>
    ["window", "2020"].every((word) =>
      `${row.id} ${row.title} ${row.summary} ${row.source} ${row.year}`
        .toLowerCase()
        .includes(word),
    ),
  );
  expect(words.length).toBeGreaterThan(0);
  expect(await shown()).toEqual(ids(words));
  await expect(page.getByText(`${words.length} of ${ROWS.length} mechanisms`)).toBeVisible();
  await page.getByRole("button", { name: "Show all" }).click();
  await expect(cards).toHaveCount(ROWS.length);
});

test("in German, words of both languages find a mechanism", async ({ page }) => {
  await page.goto("./de/gallery.html");
  for (const word of ["Fenster", "window"]) {
    await page.getByLabel("Suche").fill(word);
    await expect(page.getByTestId("card-longformer")).toBeVisible();
    await expect(page.getByTestId("card-linformer")).toHaveCount(0);
  }
});

test("a search without a match says so", async ({ page }) => {
  await page.goto("./gallery.html");
  await page.getByLabel("Search").fill("perpetual motion");
  await expect(page.getByText("Nothing is called like that.")).toBeVisible();
});

test("names are found with and without their marks", async ({ page }) => {
  await page.goto("./gallery.html");
  for (const name of ["veličković", "velickovic", "Nyström", "nystrom"]) {
    await page.getByLabel("Search").fill(name);
    await expect(page.getByTestId(/^card-/)).toHaveCount(1);
  }
});

test("the filter is in the address: a link opens it, and back returns to it", async ({ page }) => {
  await page.goto("./gallery.html#family=low_rank&search=convolution");
  await expect(page.getByTestId(/^card-/)).toHaveCount(1);
  await page.getByLabel("Search").fill("");
  await expect.poll(() => page.url()).toMatch(/#family=low_rank$/);
  await page.getByTestId("card-linformer").getByRole("link").click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Linformer");
  await page.goBack();
  await expect(page.getByTestId(/^card-/)).toHaveCount(
    ROWS.filter(({ family }) => family === "low_rank").length,
  );
  await page.goForward();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Linformer");
  // Nonsense in a link is left out.
  await page.goto("./gallery.html#family=secret&cost=free");
  await expect(page.getByTestId(/^card-/)).toHaveCount(ROWS.length);
});

test("the keyboard reaches a card, and Enter opens it", async ({ page }) => {
  await page.goto("./gallery.html#search=bahdanau");
  await page.getByLabel("Search").focus();
  const link = page.getByTestId("card-additive").getByRole("link");
  for (
    let step = 0;
    step < 14 && !(await link.evaluate((a) => a === document.activeElement));
    step++
  ) {
    await page.keyboard.press("Tab");
  }
  await expect(link).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Additive attention");
});
