// The figure without a mouse, by eye and by ear.
import { test } from "./one_page.js";
import { DemoPage, expect, readExport } from "./page.js";

const WORDS = "text=one+two+three+four+five";

test("arrows move, Enter pins, Escape releases, Space hides and shows", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  await demo.matrix.focus();
  await page.keyboard.press("ArrowDown");
  await expect(demo.readout).toContainText(/one\s+looks at\s+one/);
  for (const key of ["ArrowDown", "ArrowRight", "ArrowRight"]) await page.keyboard.press(key);
  await expect(demo.readout).toContainText(/two\s+looks at\s+three/);
  await page.keyboard.press("Enter");
  await expect(demo.readout).toContainText("pinned");
  expect((await readExport(page)).pin).toEqual({ row: 1, column: 2 });

  await demo.matrix.focus();
  await page.keyboard.press(" ");
  expect((await readExport(page)).keep[1]).toEqual([1, 1, 0, 1, 1]);
  await expect(demo.readout).toContainText("Hidden by a painted cell.");
  await demo.matrix.focus();
  await page.keyboard.press(" ");
  expect((await readExport(page)).keep).toBeUndefined();

  await demo.matrix.focus();
  await page.keyboard.press("Escape");
  expect((await readExport(page)).pin).toBeNull();
});

test("Home, End, Page Up and Page Down reach the edges and stop there", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  await demo.matrix.focus();
  for (const [keys, reading] of [
    [["Home", "End", "PageDown"], /five\s+looks at\s+five/],
    [["ArrowDown", "ArrowRight"], /five\s+looks at\s+five/],
    [["PageUp", "Home", "ArrowUp", "ArrowLeft"], /one\s+looks at\s+one/],
  ] as const) {
    for (const key of keys) await page.keyboard.press(key);
    await expect(demo.readout).toContainText(reading);
  }
});

test("what is read is also spoken, politely", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  await demo.matrix.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  const live = page.locator('[aria-live="polite"]');
  await expect(live).toHaveText(
    /^Pinned\. query one, key one: scaled q·k [−\d.]+, score [−\d.]+, weight [\d.]+, rank \d of 5\.$/,
  );
});

test("Tab reaches every control and the focus is always visible", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  await page.locator("body").click({ position: { x: 1, y: 1 } });
  const reached = new Set<string>();
  for (let step = 0; step < 90; step++) {
    await page.keyboard.press("Tab");
    const state = await page.evaluate(() => {
      const element = document.activeElement as HTMLElement;
      if (!element || element === document.body) return null;
      const around = [element, element.closest("label")].filter((item) => item !== null);
      const visible = around.some((item) => {
        const style = getComputedStyle(item);
        return style.outlineStyle !== "none" || style.boxShadow !== "none";
      });
      const words =
        element.getAttribute("aria-label") ??
        (element as HTMLInputElement).labels?.[0]?.textContent ??
        element.textContent;
      return { name: words?.trim().replace(/\s+/g, " ") ?? "", visible };
    });
    if (!state) break;
    expect(state, `focus on ${state.name}`).toMatchObject({ visible: true });
    reached.add(state.name);
  }
  const all = [...reached].join("\n");
  for (const name of ["Type a sentence", "Weights", "Show as table", "Temperature", "Softcap"]) {
    expect(all).toContain(name);
  }
  for (const name of ["ALiBi", "Only neighbours", "Paint cells", "PNG", "Copy link", "Width"]) {
    expect(all).toContain(name);
  }
});
