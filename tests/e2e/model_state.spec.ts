// The model's page: its state in its link, another model while one is loading, and what is stopped or stale.
import type { Page } from "@playwright/test";
import { float32, gpt2Numbers, type Sizes, safetensors, tensorsOf } from "../js/model_files.js";
import { test } from "./one_page.js";
import { expect } from "./page.js";

const status = (page: Page) => page.getByTestId("model-status");
const passage = (page: Page) => page.getByTestId("passage-loss");
const text = (page: Page) => page.getByRole("textbox", { name: "Text" });
const button = (page: Page, name: string) => page.getByRole("button", { name, exact: true });
const tokens = (page: Page) =>
  page.getByRole("group", { name: "Tokens of the text" }).getByRole("button");

async function open(page: Page, fragment = ""): Promise<void> {
  await page.goto(`./model.html${fragment}`);
  await expect(status(page)).toContainText("nats a token", { timeout: 30_000 });
  await expect(passage(page)).toContainText("nats a token");
}

/** A model of the visitor's own, without a tokenizer: texts are numbers. */
async function openOwn(page: Page, sizes: Partial<Sizes> = {}): Promise<void> {
  const small = { layers: 2, heads: 2, kvHeads: 2, headDim: 2, embed: 4, hidden: 8 };
  const whole: Sizes = { ...small, vocab: 10, positions: 64, ...sizes };
  const file = safetensors(tensorsOf(gpt2Numbers(whole, 3), float32));
  const config = JSON.stringify({ model_type: "gpt2", n_head: whole.heads });
  const box = page.getByTestId("open-model");
  const choose = (role: RegExp, name: string, buffer: Buffer) =>
    box.getByLabel(role).setInputFiles({ name, mimeType: "", buffer });
  const weights = Buffer.from(new Uint8Array(await file.arrayBuffer()));
  await choose(/Choose Weights/, "own.safetensors", weights);
  await choose(/Choose Sizes/, "config.json", Buffer.from(config));
  await box.getByRole("button", { name: "Open the model" }).click();
  await expect(page.getByTestId("numbers-hint")).toBeVisible();
}

const LINK =
  "#v=1&text=And+the+men+of+the+city&head=3,2&order=distance&look=head&token=3&pin=3,2&T=0.5&k=0&seed=7&out=1,2.2,1";

test("a link restores text, token, head, order, cell, settings and the heads that are out", async ({
  page,
}) => {
  await open(page, LINK);
  await expect(text(page)).toHaveValue("And the men of the city");
  await expect(tokens(page).nth(2)).toHaveAttribute("aria-pressed", "true");
  await expect(page.getByRole("heading", { name: "Layer 3, head 2" })).toBeVisible();
  const byDistance = button(page, "By distance");
  await expect(byDistance).toHaveAttribute("aria-pressed", "true");
  await expect(page.getByText(/^Blue: what “·the” looks at in Layer 3, head\s2/)).toBeVisible();
  const readout = page.getByTestId("readout").first();
  await expect(readout).toHaveText(/^Layer 3, head\s2: “·the” looks at “And”, weight 0\.\d+\.$/);
  await expect(passage(page)).toContainText("Without 2 of 16 heads");
  await expect(page.getByRole("slider", { name: /Temperature/ })).toHaveValue("0.5");
  await expect(page.getByRole("spinbutton", { name: "Seed" })).toHaveValue("7");

  // What is changed is in the address, and what is as at the beginning is not.
  await button(page, "all heads").click();
  await button(page, "All heads back").click();
  await page.getByRole("application", { name: /Layer 3, head\s2/ }).focus();
  await page.keyboard.press("Escape");
  await expect(page).toHaveURL(
    /#v=1&text=And\+the\+men\+of\+the\+city&head=3%2C2&order=distance&token=3&T=0\.5&k=0&seed=7$/,
  );
  await text(page).fill("And it came");
  await expect(page).toHaveURL(
    /#v=1&text=And\+it\+came&head=3%2C2&order=distance&T=0\.5&k=0&seed=7$/,
  );
});

test("a link that is followed on the page is shown; one of nothing is the page as it begins", async ({
  page,
}) => {
  await open(page);
  await page.evaluate((link) => {
    location.hash = link;
  }, LINK);
  await expect(passage(page)).toContainText("Without 2 of 16 heads");
  await expect(text(page)).toHaveValue("And the men of the city");
  await page.evaluate(() => {
    location.hash = "#v=1&head=90,1&pin=900,900&token=5000&out=90,90";
  });
  await expect(passage(page)).toContainText("With all heads");
  await expect(text(page)).toHaveValue(/^In the beginning/);
  await expect(tokens(page).last()).toHaveAttribute("aria-pressed", "true");
  await expect(page.getByRole("heading", { name: "Layer 1, head 1" })).toBeVisible();
});

test("a model that is opened while the first still loads stays, by its name", async ({ page }) => {
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  await page.route(/\.safetensors$/, async (route) => {
    await held;
    await route.continue();
  });
  const arrived = page.waitForResponse(/\.safetensors$/);
  await page.goto("./model.html");
  await openOwn(page);
  await text(page).fill("1 2 3");
  await expect(status(page)).toContainText("3 tokens");
  release();
  await (await arrived).finished();
  // Long enough for the first model to be read, had it been.
  await page.waitForTimeout(1500);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("own.safetensors, head by head");
  await expect(status(page)).toContainText("3 tokens");
  await button(page, "Back to the model of the site").click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(/^A small language model/);
  await expect(passage(page)).toContainText("With all heads");
});

test("heads that a link takes out are out of the site's model that is still coming back", async ({
  page,
}) => {
  await open(page);
  await openOwn(page);
  const back = button(page, "Back to the model of the site");
  await back.evaluate((element: HTMLButtonElement, link) => {
    element.click();
    location.hash = link;
  }, LINK);
  await expect(passage(page)).toContainText("Without 2 of 16 heads");
  await expect(page.getByRole("heading", { name: "Layer 3, head 2" })).toBeVisible();
  await expect(page).toHaveURL(/&out=1%2C2\.2%2C1$/);
});

test("measuring the heads can be stopped: what is measured stays, and it begins anew", async ({
  page,
}) => {
  await open(page);
  await button(page, "How much does each head matter?").click({ noWaitAfter: true });
  const measured = () => page.locator(".cost").filter({ hasText: /[+−]/ }).count();
  await expect.poll(measured).toBeGreaterThan(0);
  await button(page, "Stop").click();
  await expect(button(page, "How much does each head matter?")).toBeVisible();
  const count = await measured();
  expect(count).toBeLessThan(16);
  // A run that was under way leaves nothing behind.
  await page.waitForTimeout(700);
  expect(await measured()).toBe(count);
  await button(page, "How much does each head matter?").click();
  await expect.poll(measured, { timeout: 30_000 }).toBe(16);
});

test("nothing goes on from a text that has not been read", async ({ page }) => {
  await open(page);
  await button(page, "Go on").click();
  await expect(button(page, "Go on")).toBeVisible({ timeout: 30_000 });
  await expect(button(page, "Take it into the text")).toBeEnabled();
  const isOff = await page.evaluate(async () => {
    const area = document.querySelector("textarea") as HTMLTextAreaElement;
    area.value = "Another text";
    area.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise(requestAnimationFrame);
    return [...document.querySelectorAll<HTMLButtonElement>(".go button")]
      .slice(0, 2)
      .map(({ disabled }) => disabled);
  });
  expect(isOff).toEqual([true, true]);
  await expect(tokens(page).nth(1)).toHaveText("A");
  await expect(button(page, "Go on")).toBeEnabled();
  await expect(button(page, "Take it into the text")).toBeDisabled();
  await expect(page.getByTestId("reading")).toHaveAttribute("data-written", "0");
});

test("where the heads of all layers are too many, those of one are shown", async ({ page }) => {
  test.slow();
  await open(page);
  const wide = { layers: 8, heads: 8, kvHeads: 8, headDim: 2, embed: 16, hidden: 16 };
  await openOwn(page, { ...wide, positions: 1024 });
  await text(page).fill("1 2 3");
  await expect(status(page)).toContainText("3 tokens");
  await expect(page.getByTestId("one-layer")).toHaveCount(0);
  await text(page).fill(Array.from({ length: 1024 }, (_, n) => n % 10).join(" "));
  await expect(status(page)).toContainText("1024 tokens", { timeout: 60_000 });
  await expect(page.getByTestId("one-layer")).toBeVisible();
  await expect(button(page, "through all layers")).toHaveCount(0);
  await page.getByRole("group", { name: "Layer" }).getByText("5", { exact: true }).click();
  await expect(page.getByRole("heading", { name: "Layer 5, head 1" })).toBeVisible({
    timeout: 60_000,
  });
  await expect(page.getByRole("radiogroup", { name: "Heads" }).locator("canvas")).toHaveCount(8);
  await button(page, "all heads").click();
  await expect(page.getByText(/the mean of the heads of layer 5\.$/)).toBeVisible();
  // A link to another layer is followed.
  const typed = await text(page).inputValue();
  await page.evaluate((value) => {
    location.hash = `v=1&text=${value.replaceAll(" ", "+")}&head=7,3&look=head`;
  }, typed);
  await expect(page.getByRole("heading", { name: "Layer 7, head 3" })).toBeVisible({
    timeout: 60_000,
  });
});

test("a file that is dropped beside the box does not take the place of the page", async ({
  page,
}) => {
  await open(page);
  const prevented = await page.evaluate(() => {
    const given = { bubbles: true, cancelable: true };
    const isPrevented = (type: string, dataTransfer: DataTransfer) => {
      const event = new DragEvent(type, { ...given, dataTransfer });
      document.querySelector("h1")?.dispatchEvent(event);
      return event.defaultPrevented;
    };
    const file = new DataTransfer();
    file.items.add(new File(["x"], "model.safetensors"));
    const words = new DataTransfer();
    words.setData("text/plain", "words");
    return [isPrevented("dragover", file), isPrevented("drop", file), isPrevented("drop", words)];
  });
  expect(prevented).toEqual([true, true, false]);
});
