// What a mechanism's page shows while heed refuses a parameter, and how numbers are typed.
import type { Locator, Page } from "@playwright/test";
import { expectNothingSerious } from "./axe.js";
import { test } from "./one_page.js";
import { expect } from "./page.js";

const PHONE = { width: 390, height: 844 };

async function openAttention(page: Page, folder = "", state = ""): Promise<Locator> {
  await page.goto(`./${folder}mechanisms/attention.html${state}`);
  await expect(page.getByTestId("error-attention")).toContainText(/\d/);
  return page.getByTestId("panel-attention");
}

/** The field of a parameter, whose label has its symbol too. */
const field = (panel: Locator, name: string): Locator =>
  panel.locator(`label:has(code:text-is("${name}")) input`);

async function type(panel: Locator, name: string, text: string): Promise<void> {
  await field(panel, name).fill(text);
  await field(panel, name).press("Enter");
}

test("on a phone a refusal is in sight, under the field that caused it", async ({ page }) => {
  await page.setViewportSize(PHONE);
  const panel = await openAttention(page);
  const softcap = field(panel, "softcap");
  await type(panel, "softcap", "0");
  const refusal = panel.getByRole("alert");
  await expect(refusal).toHaveText(/^heed refuses this: softcap: got 0, expected /);
  await expect(refusal).toBeInViewport({ ratio: 1 });
  await expect(softcap).toBeInViewport({ ratio: 1 });
  await expect(softcap).toBeFocused();
  await expect(softcap).toHaveAttribute("aria-invalid", "true");
  await expect(softcap).toHaveAccessibleDescription(/^heed refuses this: softcap: got 0/);
  const [above, below] = [await softcap.boundingBox(), await refusal.boundingBox()];
  expect(below?.y).toBeGreaterThan(above?.y ?? Infinity);
  await expectNothingSerious(page, "while a parameter is refused");
  await type(panel, "softcap", "2");
  await expect(refusal).toHaveCount(0);
  await expect(softcap).not.toHaveAttribute("aria-invalid");
});

test("a refusal speaks of controls by their names", async ({ page }) => {
  const panel = await openAttention(page, "de/");
  await type(panel, "windowLeft", "-1");
  await expect(panel.getByRole("alert")).toHaveText(/^heed lehnt das ab: windowLeft: got -1/);
  await field(panel, "scoreMod").fill("scroe + 1");
  await type(panel, "windowLeft", "");
  await expect(panel.getByRole("alert")).toContainText("`scroe` is unknown");
  await expect(field(panel, "scoreMod")).toHaveAttribute("aria-invalid", "true");
});

test("the last good picture stays, and neither files nor code are offered of the refused call", async ({
  page,
}) => {
  const panel = await openAttention(page);
  await type(panel, "scale", "2");
  await expect(panel.locator("pre")).toContainText("scale: 2");
  const canvas = panel.locator(".matrix canvas");
  const before = await canvas.boundingBox();
  await type(panel, "scale", "1e999");
  await expect(panel.getByRole("alert")).toContainText("scale: got Infinity");
  expect((await canvas.boundingBox())?.height).toBe(before?.height);
  await expect(panel.getByTestId("answer")).toHaveAttribute("inert");
  await expect(panel.locator("pre")).toContainText("scale: 2");
  for (const kind of ["PNG", "SVG", "CSV", "JSON"]) {
    await expect(panel.getByRole("button", { name: kind, exact: true })).toBeDisabled();
  }
  const code = page.getByTestId("code");
  await expect(code).toHaveText("heed refuses one of the parameters above.");
  await expect(page.getByRole("button", { name: "Copy", exact: true })).toBeDisabled();
  await panel.getByRole("button", { name: "Back to the start" }).click();
  await expect(code).toContainText("heed.run");
  await expect(panel.getByRole("button", { name: "PNG", exact: true })).toBeEnabled();
});

test("a link to a refused call shows the start and says so", async ({ page }) => {
  const panel = await openAttention(page, "", "#v=1&softcap=0");
  await expect(panel.getByRole("alert")).toContainText("softcap: got 0");
  await expect(panel.locator(".matrix canvas")).toBeVisible();
});

test("a German visitor types and sees decimal commas", async ({ page }) => {
  const panel = await openAttention(page, "de/");
  const scale = field(panel, "scale");
  await expect(scale).toHaveAttribute("inputmode", "text");
  await type(panel, "scale", "−1,5");
  await expect(panel.getByRole("alert")).toHaveCount(0);
  await expect(scale).toHaveValue("-1,5");
  await expect(panel.locator("pre")).toContainText("scale: -1.5");
});

test("what an expression may look like is there in full", async ({ page }) => {
  await page.setViewportSize(PHONE);
  const panel = await openAttention(page);
  const hint = panel.getByText("score - abs(q_idx - kv_idx)", { exact: true });
  await hint.scrollIntoViewIfNeeded();
  const isWhole = await hint.evaluate((code) => {
    const { left, right } = code.getBoundingClientRect();
    return left >= 0 && right <= innerWidth && code.scrollWidth <= right - left + 1;
  });
  expect(isWhole).toBe(true);
  await type(panel, "scoreMod", (await hint.textContent()) ?? "");
  await expect(panel.getByRole("alert")).toHaveCount(0);
  await expect(panel.locator("pre")).toContainText("q_idx");
});
