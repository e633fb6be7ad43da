// The language model of the site: what it expects, what its heads look at and matter, what it writes.
import type { Page } from "@playwright/test";
import facts from "../../web/language_model/facts.json" with { type: "json" };
import { test } from "./one_page.js";
import { expect } from "./page.js";

const status = (page: Page) => page.getByTestId("model-status");
const passage = (page: Page) => page.getByTestId("passage-loss");
const predictions = (page: Page) => page.getByTestId("predictions").locator("code");
const button = (page: Page, name: string) => page.getByRole("button", { name, exact: true });
const tokens = (page: Page) =>
  page.getByRole("group", { name: "Tokens of the text" }).getByRole("button");

async function open(page: Page): Promise<void> {
  await page.goto("./model.html");
  await expect(predictions(page).first()).toBeVisible({ timeout: 30_000 });
  await expect(passage(page)).toContainText("With all heads");
}

const lossOf = async (page: Page) => Number(await passage(page).getAttribute("data-loss"));

async function retype(page: Page, text: string, words: RegExp): Promise<void> {
  await page.getByRole("textbox", { name: "Text" }).fill(text);
  await expect(status(page)).toContainText(words);
}

test("after the first verse the earth is expected, and the page says how good the model is", async ({
  page,
}) => {
  await open(page);
  await expect(tokens(page).first()).toHaveText("(start)");
  expect((await predictions(page).allTextContents()).slice(0, 5)).toContain("·earth");
  const { heldOutPerplexity } = facts.result;
  await expect(page.locator(".lead")).toContainText(
    `perplexity is ${heldOutPerplexity.toFixed(1)}:`,
  );
  expect(Math.abs((await lossOf(page)) - facts.passage.loss)).toBeLessThan(1e-4);
});

test("the probabilities of a chosen token fit what follows it", async ({ page }) => {
  await open(page);
  const first = await page.getByTestId("predictions").innerText();
  await tokens(page).nth(1).click();
  await expect(page.getByRole("heading", { name: "What comes after “In”" })).toBeVisible();
  await expect(page.getByText(/What follows in the text, “·the”, had \d+\.\d\s%/)).toBeVisible();
  await expect(page.getByTestId("predictions")).not.toHaveText(first);
  const shares = await page.getByTestId("predictions").locator(".number").allTextContents();
  const percents = shares.map((text) => Number.parseFloat(text));
  expect(percents).toEqual([...percents].sort((a, b) => b - a));
  expect(percents.reduce((a, b) => a + b)).toBeLessThanOrEqual(100.5);
});

test("a head that is taken out changes the loss and comes back", async ({ page }) => {
  await open(page);
  const whole = await lossOf(page);
  const head = page
    .getByRole("group", { name: "Heads that are in the model" })
    .getByRole("button")
    .first();
  await head.click();
  await expect(passage(page)).toContainText("Without 1 of 16 heads");
  expect(Math.abs((await lossOf(page)) - whole)).toBeGreaterThan(1e-4);
  await button(page, "All heads back").click();
  await expect(passage(page)).toContainText("With all heads");
  expect(await lossOf(page)).toBe(whole);

  // Measured one by one, the first head costs what taking it out has cost.
  await button(page, "How much does each head matter?").click();
  await expect(page.locator(".cost").last()).toHaveText(/^[+−]/);
  await expect(page.locator(".cost")).toHaveCount(16);
});

test("it goes on with the text: the same seed, the same words", async ({ page }) => {
  await open(page);
  const reading = page.getByTestId("reading");
  const write = async () => {
    await button(page, "Go on").click();
    await expect(button(page, "Stop")).toBeVisible();
    await expect(button(page, "Go on")).toBeVisible({ timeout: 30_000 });
    return reading.innerText();
  };
  const before = await tokens(page).count();
  const first = await write();
  expect(await tokens(page).count()).toBeGreaterThan(before);
  // The newest token is the chosen one, and others are drawn in the colour of keys.
  await expect(tokens(page).last()).toHaveAttribute("aria-pressed", "true");
  const strengths = await tokens(page).evaluateAll((all) =>
    all.map((token) => Number((token as HTMLElement).style.getPropertyValue("--strength"))),
  );
  const squares = strengths.map((strength) => strength * strength);
  expect(squares.reduce((a, b) => a + b)).toBeCloseTo(1, 1);
  expect(await write()).toBe(first);
  await page.getByRole("spinbutton", { name: "Seed" }).fill("2");
  await page.keyboard.press("Enter");
  expect(await write()).not.toBe(first);

  await button(page, "Take it into the text").click();
  await expect(reading).toHaveAttribute("data-written", "0");
  await expect(page.getByRole("textbox", { name: "Text" })).not.toHaveValue(/heaven and the$/);
});

test("every head has its map, and what is chosen is seen", async ({ page }) => {
  await open(page);
  const heads = page.getByRole("radiogroup", { name: "Heads" });
  await expect(heads.locator("canvas")).toHaveCount(16);
  await heads.getByText("Layer 3, head 2").click();
  await expect(page.getByRole("heading", { name: "Layer 3, head 2" })).toBeVisible();
  await expect(page.getByText(/^Blue: what “·the” looks at in Layer 3, head\s2\.$/)).toBeVisible();
  await button(page, "through all layers").click();
  await expect(page.getByText(/attention rollout/)).toBeVisible();
});

test("an empty text, a long one and markup are read as they are", async ({ page }) => {
  await open(page);
  await retype(page, "", /1 token/);
  await expect(predictions(page)).toHaveCount(10);
  await retype(page, "<b>and</b> it came to pass", /\d+ tokens, \d/);
  await expect(page.getByTestId("reading")).toContainText("<");
  await retype(
    page,
    "And it came to pass. ".repeat(80),
    /256 tokens are read, the last ones; \d+ before them are more/,
  );
  // The end of a text that fills the context is gone on with.
  await button(page, "Go on").click();
  await expect(page.getByTestId("cut")).toContainText(/from the last \d+ tokens/);
  await expect(button(page, "Go on")).toBeVisible({ timeout: 30_000 });
  await expect(page.getByTestId("reading")).toHaveAttribute("data-written", "80");
  await expect(status(page)).toContainText("before them");
});
