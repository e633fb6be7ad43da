// The gallery: any mechanism opens to a live picture that can be read, changed and understood.
import { DemoPage, expect, test } from "./page.js";

async function openMechanism(demo: DemoPage, id: string) {
  await demo.open();
  await demo.page.getByTestId(`open-${id}`).click();
  return demo.page.getByTestId(`panel-${id}`);
}

test("a control changes the picture, and the call that is shown", async ({ page }) => {
  const panel = await openMechanism(new DemoPage(page), "longformer");
  const before = await panel.locator("canvas").first().screenshot();
  await expect(panel.locator("pre")).toContainText("reach: 2");
  await panel.getByLabel("reach").fill("1");
  await panel.getByLabel("reach").press("Enter");
  await expect(panel.locator("pre")).toContainText("reach: 1");
  expect(before.equals(await panel.locator("canvas").first().screenshot())).toBe(false);
  await panel.getByRole("button", { name: "Back to the start" }).click();
  await expect(panel.locator("pre")).toContainText("reach: 2");
  expect(before.equals(await panel.locator("canvas").first().screenshot())).toBe(true);
});

test("an expression that hides a key is seen in the picture", async ({ page }) => {
  const panel = await openMechanism(new DemoPage(page), "scaled_dot_product");
  await panel.getByLabel("keepMod").fill("kvIndex == 2");
  await panel.getByLabel("keepMod").press("Enter");
  const readout = page.getByTestId("readout-scaled_dot_product");
  await panel.getByRole("application").focus();
  await page.keyboard.press("ArrowRight");
  await expect(readout).toHaveText("query 1, key 1: hidden");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await expect(readout).toHaveText("query 1, key 3: 1.0000");
});

test("what heed refuses is explained in its own words", async ({ page }) => {
  const panel = await openMechanism(new DemoPage(page), "attention");
  await panel.getByLabel("softcap").fill("-1");
  await panel.getByLabel("softcap").press("Enter");
  await expect(panel.getByRole("status")).toContainText("heed refuses this: softcap: got -1");
  await panel.getByLabel("scoreMod").fill("scroe + 1");
  await panel.getByLabel("softcap").fill("");
  await panel.getByLabel("softcap").press("Enter");
  await expect(panel.getByRole("status")).toContainText("`scroe` is unknown");
});

test("words bring the controls that they need, and those leave again", async ({ page }) => {
  const panel = await openMechanism(new DemoPage(page), "attention");
  await expect(panel.getByLabel("topK")).toHaveCount(0);
  await panel.getByLabel("normalize").selectOption("top_k");
  await expect(panel.getByLabel("topK")).toBeVisible();
  await panel.getByLabel("normalize").selectOption("softmax");
  await expect(panel.getByLabel("topK")).toHaveCount(0);
  await panel.getByLabel("pattern").selectOption("bigbird");
  await expect(panel.getByLabel("randomBlocks")).toBeVisible();
});

test("every mechanism opens to a picture that agrees with the reference", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open();
  const buttons = await page.locator("#mechanisms [data-testid^='open-']").all();
  expect(buttons.length).toBeGreaterThan(30);
  for (const button of buttons) {
    const id = ((await button.getAttribute("data-testid")) ?? "").replace("open-", "");
    await button.click();
    await expect(page.getByTestId(`error-${id}`)).toHaveText(
      /^(0|\d\.\d\s×\s10⁻([⁶-⁹]|[⁰¹²³⁴-⁹]{2}))$/,
    );
    await expect(page.getByTestId(`panel-${id}`).locator("canvas").first()).toBeVisible();
  }
});
