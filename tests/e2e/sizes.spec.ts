// Between the two sizes that every_page.spec.ts looks at: no kind of page scrolls sideways at any width, also one
// that it was not opened in, and the header keeps its words apart.
import { test } from "./one_page.js";
import { DemoPage, expect, type Page } from "./page.js";
import { KINDS_OF_PAGES, openSettled } from "./pages.js";

const WIDTHS = [320, 360, 375, 390, 719, 720, 768, 820, 844, 960, 1080] as const;

/** How far a page reaches beyond its window, and what stands there. */
const beyond = (page: Page) =>
  page.evaluate(() => {
    const over = (document.scrollingElement?.scrollWidth ?? 0) - innerWidth;
    if (over <= 0) return "";
    const wide = [...document.querySelectorAll("main *, header *")].filter(
      (element) => element.getBoundingClientRect().right > innerWidth + 1,
    );
    return `${innerWidth}: +${over}, ${wide[0]?.outerHTML.slice(0, 80)}`;
  });

/** Words of the header that are broken into lines or stand on each other. */
const collisions = (page: Page) =>
  page.evaluate(() => {
    const all = [...document.querySelectorAll("header.site a")].map((link) => {
      const range = document.createRange();
      range.selectNodeContents(link);
      return { text: link.textContent ?? "", boxes: [...range.getClientRects()] };
    });
    const found = all.filter(({ boxes }) => boxes.length > 1).map(({ text }) => text);
    const boxes = all.flatMap((one) => one.boxes);
    for (const [n, a] of boxes.entries()) {
      const meets = (b: DOMRect) =>
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
      if (boxes.slice(n + 1).some(meets)) found.push(`${innerWidth}: ${Math.round(a.left)}`);
    }
    return found;
  });

for (const path of KINDS_OF_PAGES) {
  test(`${path} fits into every width`, async ({ page }) => {
    await page.setViewportSize({ width: 1280, height: 844 });
    await openSettled(page, `./${path}`);
    const found = async () => [await beyond(page), ...(await collisions(page))].filter(Boolean);
    for (const width of [...WIDTHS, ...WIDTHS.toReversed()]) {
      await page.setViewportSize({ width, height: 844 });
      // Pictures learn their width in one frame and are painted in the next, or later on a busy machine.
      await page.evaluate(() => new Promise((done) => setTimeout(done, 60)));
      await expect.poll(found, `${width}`).toEqual([]);
    }
  });
}

test("a phone that is turned shows the first page as wide as it is, and back", async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await new DemoPage(page).open();
  const heads = page.getByRole("group", { name: "Heads" });
  for (const width of [844, 719, 720, 390, 320, 1280]) {
    await page.setViewportSize({ width, height: 500 });
    await expect.poll(() => beyond(page), `${width}`).toBe("");
    const most = width > 1000 ? 213 : width;
    await expect
      .poll(async () => (await heads.boundingBox())?.width, `${width}`)
      .toBeLessThanOrEqual(most);
  }
});

test("where colours are the system's, what is chosen and every number's length are seen", async ({
  page,
}) => {
  await page.emulateMedia({ forcedColors: "active" });
  await new DemoPage(page).open("pin=5,3");
  const colours = (selector: string) =>
    page.locator(selector).evaluateAll((all) => {
      const probe = document.createElement("i");
      document.body.append(probe);
      probe.style.color = "Highlight";
      const chosen = getComputedStyle(probe).color;
      probe.remove();
      return all.map((one) => getComputedStyle(one).backgroundColor === chosen);
    });
  // One of eight matrices, one of four presets.
  expect(await colours(".tabs button")).toEqual(Array.from({ length: 8 }, (_, view) => view === 6));
  expect(await colours(".presets button")).toEqual([true, false, false, false]);
  const painted = (selector: string) =>
    page
      .locator(selector)
      .first()
      .evaluate((one) => {
        const { backgroundColor } = getComputedStyle(one);
        return backgroundColor !== getComputedStyle(document.body).backgroundColor;
      });
  await page.locator(".tokens li").first().hover();
  expect(await painted(".tokens .bar")).toBe(true);
  await openSettled(page, "./model.html");
  expect(await painted("[data-testid=predictions] .bar")).toBe(true);
  const shades = await page
    .locator("button.token")
    .evaluateAll((all) => all.map((one) => getComputedStyle(one).backgroundSize));
  expect(new Set(shades).size).toBeGreaterThan(2);
  await page.emulateMedia({ forcedColors: null });
});
