// Contrast, names, roles, sizes and motion, in both themes, wide and on a phone.
import { AxeBuilder } from "@axe-core/playwright";
import type { Page } from "@playwright/test";
import { DemoPage, expect, test } from "./page.js";

const SIZES = {
  wide: { width: 1280, height: 860 },
  phone: { width: 390, height: 844 },
} as const;

/** Pages of every kind, and what is there once they have computed. */
const PAGES = [
  ["./gallery.html#family=position", "card-rope"],
  ["./race.html", "race"],
  ["./training.html", "training-status"],
  ["./model.html", "predictions"],
  ["./edge_cases.html", "case-empty_row"],
  ["./benchmarks.html", "peers"],
  ["./mechanisms/attention.html", "error-attention"],
  ["./mechanisms/scaled_dot_product.html", "agreement"],
  ["./mechanisms/flash.html", "agreement"],
  ["./mechanisms/delta_rule.html", "agreement"],
  ["./mechanisms/graph.html", "agreement"],
  ["./mechanisms/longformer.html", "error-longformer"],
  ["./de/gallery.html#family=position", "card-rope"],
  ["./de/race.html", "race"],
  ["./de/training.html", "training-status"],
  ["./de/model.html", "predictions"],
  ["./de/edge_cases.html", "case-empty_row"],
  ["./de/benchmarks.html", "peers"],
  ["./de/mechanisms/flash.html", "agreement"],
] as const;

async function expectNothingSerious(page: Page): Promise<void> {
  const { violations } = await new AxeBuilder({ page }).analyze();
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  expect(serious.map(({ id, nodes }) => `${page.url()} ${id}: ${nodes[0]?.html}`)).toEqual([]);
}

async function expectTouchable(page: Page): Promise<void> {
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
  const small = await page.evaluate(() => {
    const found: string[] = [];
    for (const control of document.querySelectorAll("button, select, input, [role=application]")) {
      // A radio or checkbox is touched through its label.
      const target = control.closest("label") ?? control;
      const { width, height } = target.getBoundingClientRect();
      if (height < 44 || width < 44) found.push(`${target.textContent?.trim()} ${width}x${height}`);
    }
    return found;
  });
  expect(small, page.url()).toEqual([]);
}

for (const [size, viewport] of Object.entries(SIZES)) {
  for (const colorScheme of ["light", "dark"] as const) {
    test(`axe finds nothing serious: ${size}, ${colorScheme}`, async ({ page }) => {
      test.slow(); // the whole page, twice
      await page.setViewportSize(viewport);
      await page.emulateMedia({ colorScheme });
      const demo = new DemoPage(page);
      await demo.open("past=1&pin=3,2");
      for (const asTable of [false, true]) {
        if (asTable) await page.getByLabel("Show as table").check();
        await expectNothingSerious(page);
      }
    });

    // Each size and each theme once: axe takes seconds a page.
    if ((size === "wide") !== (colorScheme === "light")) continue;
    test(`axe finds nothing serious on the mechanisms' pages: ${size}, ${colorScheme}`, async ({
      page,
    }) => {
      test.slow(); // every kind of page
      await page.setViewportSize(viewport);
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      for (const [path, ready] of PAGES) {
        await page.goto(path);
        await expect(page.getByTestId(ready)).toBeVisible();
        await expectNothingSerious(page);
      }
    });
  }
}

test("the theme follows the system, and the switch overrules it", async ({ page }) => {
  await page.emulateMedia({ colorScheme: "dark" });
  const demo = new DemoPage(page);
  await demo.open();
  const background = () =>
    page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const dark = await background();
  await page.getByLabel("Theme").selectOption("light");
  const light = await background();
  expect(light).not.toBe(dark);
  await page.reload();
  await expect(demo.caption).toContainText(/output \d/);
  expect(await background()).toBe(light);
  await page.getByLabel("Theme").selectOption("auto");
  expect(await background()).toBe(dark);
  await page.emulateMedia({ colorScheme: "light" });
  await expect.poll(background).toBe(light);
});

test("on a phone nothing scrolls sideways and every control is large enough to touch", async ({
  browser,
}) => {
  const context = await browser.newContext({
    viewport: SIZES.phone,
    hasTouch: true,
    isMobile: true,
  });
  const page = await context.newPage();
  const demo = new DemoPage(page);
  await demo.open("text=a+sentence+with+some+extraordinarily+long+words&past=1");
  await expectTouchable(page);
  for (const [path, ready] of PAGES) {
    await page.goto(path);
    await expect(page.getByTestId(ready)).toBeVisible();
    await expectTouchable(page);
  }
  await context.close();
});

test("on a phone the figure comes before its controls, and both before the text", async ({
  page,
}) => {
  await page.setViewportSize(SIZES.phone);
  const demo = new DemoPage(page);
  await demo.open();
  const top = async (selector: string) =>
    (await page.locator(selector).first().boundingBox())?.y ?? 0;
  const matrix = await top(".matrix");
  const slider = await top("input[type=range]");
  const text = await top("section.steps");
  expect(matrix).toBeLessThan(844);
  expect(matrix).toBeLessThan(slider);
  expect(slider).toBeLessThan(text);
});

test("nothing moves under reduced motion", async ({ page }) => {
  await page.emulateMedia({ reducedMotion: "reduce" });
  const demo = new DemoPage(page);
  await demo.open();
  const moving = await page.evaluate(() =>
    [...document.querySelectorAll("*")]
      .filter((element) => {
        const style = getComputedStyle(element);
        return style.transitionDuration !== "0s" || style.animationName !== "none";
      })
      .map((element) => element.className),
  );
  expect(moving).toEqual([]);
  expect(await page.evaluate(() => getComputedStyle(document.documentElement).scrollBehavior)).toBe(
    "auto",
  );
});

test("nothing jumps when numbers change", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("text=one+two+three+four&pin=1,1");
  const places = () =>
    page.evaluate(() =>
      [...document.querySelectorAll("main h2, main h3, .figure button, .figure input")].map(
        (item) => {
          const { x, y } = item.getBoundingClientRect();
          return `${Math.round(x)},${Math.round(y + scrollY)}`;
        },
      ),
    );
  const before = await places();
  await demo.slider(/Temperature/).fill("90");
  await demo.slider(/Softcap/).fill("30");
  await demo.matrix.focus();
  for (const key of ["ArrowDown", "ArrowRight", "Escape"]) await page.keyboard.press(key);
  await expect(demo.caption).toContainText(/output \d/);
  expect(await places()).toEqual(before);
});
