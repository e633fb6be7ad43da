// The tokens of the model's page: legible on every share of blue, and one stop of the Tab key.
import { AxeBuilder } from "@axe-core/playwright";
import type { Page } from "@playwright/test";
import { test } from "./one_page.js";
import { expect } from "./page.js";

const tokens = (page: Page) =>
  page.getByRole("group", { name: "Tokens of the text" }).getByRole("button");

async function open(page: Page): Promise<void> {
  await page.goto("./model.html");
  await expect(page.getByTestId("predictions").locator("code").first()).toBeVisible({
    timeout: 30_000,
  });
}

const isFocused = (page: Page, at: number) => expect(tokens(page).nth(at)).toBeFocused();

for (const colorScheme of ["light", "dark"] as const) {
  test(`tokens are legible on the deepest blue: ${colorScheme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await open(page);
    // The first token looks at itself alone: chosen, and as blue as can be.
    await tokens(page).first().click();
    await page.getByRole("button", { name: "the chosen head", exact: true }).click();
    await expect(tokens(page).first()).toHaveAttribute("aria-pressed", "true");
    await expect(tokens(page).first()).toHaveAttribute("style", /--strength:\s*1\.000/);
    const axe = new AxeBuilder({ page }).include(".tokens").withRules(["color-contrast"]);
    const { incomplete, passes, violations } = await axe.analyze();
    expect(violations.flatMap(({ nodes }) => nodes.map(({ html }) => html))).toEqual([]);
    expect(incomplete).toEqual([]);
    const checked = passes.flatMap(({ nodes }) => nodes).length;
    expect(checked).toBe(await tokens(page).count());
  });
}

test("arrow keys move between tokens, and Tab leaves them", async ({ page }) => {
  await open(page);
  const last = (await tokens(page).count()) - 1;
  await expect(page.locator(".tokens [tabindex='0']")).toHaveCount(1);
  await tokens(page).last().focus();
  await page.keyboard.press("ArrowLeft");
  await isFocused(page, last - 1);
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowRight");
  await isFocused(page, last - 1);
  await page.keyboard.press("Home");
  await isFocused(page, 0);
  await page.keyboard.press("ArrowLeft");
  await isFocused(page, 0);
  await page.keyboard.press("Enter");
  await expect(tokens(page).first()).toHaveAttribute("aria-pressed", "true");
  await page.keyboard.press("End");
  await isFocused(page, last);
  await expect(tokens(page).first()).toHaveAttribute("aria-pressed", "true");
  await page.keyboard.press("Tab");
  await expect(page.locator(".tokens :focus")).toHaveCount(0);
  // Back on the one that is chosen.
  await page.keyboard.press("Shift+Tab");
  await isFocused(page, 0);
  await expect(page.locator(".tokens [tabindex='0']")).toHaveCount(1);
});
