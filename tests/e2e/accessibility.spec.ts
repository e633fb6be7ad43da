// The first page: its table as axe sees it, the theme, the order on a phone. What every page must hold
// is in every_page.spec.ts.
import { expectNothingSerious, OF_COLOUR } from "./axe.js";
import { test } from "./one_page.js";
import { DemoPage, expect } from "./page.js";

const SIZES = {
  wide: { width: 1280, height: 860 },
  phone: { width: 390, height: 844 },
} as const;

for (const [size, viewport] of Object.entries(SIZES)) {
  test(`axe finds nothing serious, as a picture or a table, in both themes: ${size}`, async ({
    page,
  }) => {
    await page.setViewportSize(viewport);
    const demo = new DemoPage(page);
    await demo.open("past=1&pin=3,2");
    for (const form of ["picture", "table"]) {
      if (form === "table") await page.getByLabel("Show as table").check();
      await page.emulateMedia({ colorScheme: "light" });
      await expectNothingSerious(page, `${form}, light`);
      // In the second theme only the rules of colour have something new to say.
      await page.emulateMedia({ colorScheme: "dark" });
      await expectNothingSerious(page, `${form}, dark`, { rules: OF_COLOUR });
    }
  });
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

test("on a phone long words do not make the page scroll sideways", async ({ phone: page }) => {
  const demo = new DemoPage(page);
  await demo.open("text=a+sentence+with+some+extraordinarily+long+words&past=1");
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
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
