// The sentence of the first page: long words, long texts, text from right to left, and its small matrices.
import { test } from "./one_page.js";
import { DemoPage, expect } from "./page.js";

const LONG_WORD = "Donaudampfschifffahrtsgesellschaftskapitaensmuetzenabzeichen";

test("a word that is longer than a phone is wide does not widen the page", async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  const demo = new DemoPage(page);
  for (const state of [`text=${LONG_WORD}+a`, `text=${LONG_WORD}+a&pin=1,2`]) {
    await demo.open(state);
    await expect(page.locator(".tokens li").first()).toContainText(LONG_WORD);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
  }
});

test("of a long text it is said how much is read, not how much is missing", async ({ page }) => {
  const demo = new DemoPage(page);
  const help = page.locator("#sentence-help");
  await demo.open();
  await demo.sentence.fill("word ".repeat(50));
  await expect(help).toHaveText(/^40 tokens; the last 10 are left out, because/);
  await demo.sentence.fill("word ".repeat(400));
  await expect(demo.sentence).toHaveValue(/^.{400}$/);
  await expect(help).toHaveText(/^40 tokens, and no more, .* Only the first 400 characters/);
  await demo.sentence.fill(`${"long".repeat(30)} `.repeat(5));
  await expect(help).toHaveText(/^\d tokens\. Only the first 400 characters of a text are read\.$/);
});

test("text from right to left begins at the right, and its full stop ends it at the left", async ({
  page,
}) => {
  const demo = new DemoPage(page);
  await demo.open("text=one+two.");
  const direction = () => demo.sentence.evaluate((input) => getComputedStyle(input).direction);
  const places = () =>
    page
      .locator(".tokens li")
      .evaluateAll((all) => all.map((token) => token.getBoundingClientRect().x));
  expect(await direction()).toBe("ltr");
  const rising = await places();
  expect(rising).toEqual(rising.toSorted((a, b) => a - b));
  await demo.sentence.fill("القطة جلست على السجادة.");
  await expect(page.locator(".tokens li")).toHaveCount(5);
  expect(await direction()).toBe("rtl");
  const falling = await places();
  expect(falling).toEqual(falling.toSorted((a, b) => b - a));
});

test("German nouns keep their capital letter under the small matrices", async ({ page }) => {
  await page.goto("./de/");
  await expect(page.getByTestId("caption").first()).toContainText(/\d/);
  const small = page.locator(".thumb");
  const names = await small.locator(".name").allTextContents();
  expect(names.map((name) => name.trim())).toContain("X Vektoren");
  await expect(page.getByRole("button", { name: /Q Anfragen/ }).first()).toBeVisible();
});
