// Two more ways to draw what the maps show: arcs between words, and a score dimension by dimension.
import { readFile } from "node:fs/promises";
import type { Page } from "@playwright/test";
import { test } from "./one_page.js";
import { DemoPage, expect, test as inOwnTab, prepare } from "./page.js";
import { openSettled } from "./pages.js";

async function savedSvg(page: Page): Promise<string> {
  const event = page.waitForEvent("download");
  await page.getByRole("button", { name: "SVG", exact: true }).first().click();
  return readFile(await (await event).path(), "utf8");
}

const arcsIn = (svg: string): number => svg.match(/<polyline\b/g)?.length ?? 0;

inOwnTab(
  "arcs: kept in the link, in the file, and moved through by keyboard",
  async ({ page, context }) => {
    const demo = new DemoPage(page);
    await demo.open("text=one+two+three+two&past=1");
    expect(arcsIn(await savedSvg(page))).toBe(0);
    await page.getByLabel("Show as arcs").check();
    await expect.poll(() => page.url()).toContain("as=arcs");
    // Of six pairs of a word with an earlier one each may have an arc; the two "two" look at each other.
    const arcs = arcsIn(await savedSvg(page));
    expect(arcs).toBeGreaterThan(0);
    expect(arcs).toBeLessThanOrEqual(6);

    await demo.matrix.focus();
    for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"]) {
      await page.keyboard.press(key);
    }
    await expect(demo.readout).toContainText("two looks at two");
    await expect.poll(() => page.url()).toContain("pin=");
    const second = await context.newPage();
    await prepare(second, false);
    await second.goto(page.url());
    await expect(second.getByLabel("Show as arcs")).toBeChecked();
    await expect(second.getByTestId("readout")).toContainText("two looks at two");
    await second.close();

    await page.getByLabel("Show as table").check();
    await expect(page.getByRole("table").first()).toBeVisible();
    await page.getByLabel("Show as table").uncheck();
    await demo.show("Scores");
    await expect(page.getByLabel("Show as arcs")).toHaveCount(0);
  },
);

test("a point beside a word is that word and what it looks at most", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("text=salt+pepper+salt&as=arcs");
  const box = await demo.matrix.boundingBox();
  if (!box) throw new Error("no picture");
  await page.mouse.move(box.x + box.width / 2, box.y + 10 + 40 * 1.5);
  await expect(demo.readout).toContainText("pepper looks at pepper");
});

test("the products of all dimensions add up to the pair's q·k", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("view=scores");
  const dimensions = page.getByTestId("dimensions");
  await expect(dimensions).toContainText("Point at a cell");
  await demo.matrix.focus();
  const sums = new Set<string>();
  for (const key of ["ArrowDown", "ArrowRight", "ArrowRight", "ArrowDown"]) {
    await page.keyboard.press(key);
    const said = await dimensions.locator("p").innerText();
    const sum = said.match(/scaled q·k, (−?\d+\.\d+)\./)?.[1] ?? "none";
    await expect(demo.readout).toContainText(new RegExp(`scaled q·k\\s*${sum}`));
    await expect(dimensions.getByRole("img")).toHaveAccessibleName(said);
    sums.add(sum);
  }
  expect(sums.size).toBeGreaterThan(2);
});

test("the heads of the language model as arcs", async ({ page }) => {
  await openSettled(page, "model.html");
  const picture = page.locator(".matrix canvas").first();
  const pixels = () => picture.evaluate((canvas) => (canvas as HTMLCanvasElement).toDataURL());
  const before = await pixels();
  await page.getByLabel("Show as arcs").first().check();
  await expect.poll(pixels).not.toBe(before);
});
