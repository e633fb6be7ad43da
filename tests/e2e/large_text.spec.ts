// Text twice as large as browsers have it: nothing scrolls sideways, and no text stands on another.
import { expect, type Page, prepare, test } from "./page.js";
import { openSettled } from "./pages.js";
import config from "./playwright.config.js";

const FONT = 32;
const { launchOptions } = config.use ?? {};
test.use({
  launchOptions: {
    ...launchOptions,
    args: [...(launchOptions?.args ?? []), `--blink-settings=defaultFontSize=${FONT}`],
  },
});

const PAGES = [
  "index.html",
  "gallery.html",
  "mechanisms/scaled_dot_product.html",
  "model.html",
  "edge_cases.html",
  "benchmarks.html",
  "de/index.html",
] as const;

/** Lines of text that share more than a few pixels with a line of another element, outside of pictures. */
const overlaps = (page: Page) =>
  page.evaluate(() => {
    const LEAST = 4;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const lines: { node: Node; box: DOMRect }[] = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (!node.textContent?.trim() || !parent?.checkVisibility()) continue;
      if (
        parent.closest("script, style, noscript, svg, math, .spoken, .skip, .word, select, thead")
      )
        continue;
      if (parent.closest("[role=region], .scroll, [data-testid=command]")) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const box of range.getClientRects()) lines.push({ node, box });
    }
    lines.sort((a, b) => a.box.top - b.box.top);
    const found: string[] = [];
    for (const [n, one] of lines.entries()) {
      for (const other of lines.slice(n + 1)) {
        if (other.box.top > one.box.bottom - LEAST) break;
        if (other.node === one.node) continue;
        const wide =
          Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
        const high = Math.min(one.box.bottom, other.box.bottom) - other.box.top;
        // Lines of small type are set closer than their boxes are high.
        if (wide > LEAST && high > 0.4 * Math.min(one.box.height, other.box.height)) {
          found.push(
            `${one.node.textContent?.trim().slice(0, 30)} / ${other.node.textContent?.trim().slice(0, 30)}`,
          );
        }
      }
    }
    return [...new Set(found)];
  });

for (const width of [1280, 390]) {
  test(`text twice as large, ${width} wide`, async ({ page, keepsOffline }) => {
    test.slow();
    await prepare(page, keepsOffline);
    await page.setViewportSize({ width, height: 860 });
    for (const path of PAGES) {
      await openSettled(page, `./${path}`);
      const { size, across } = await page.evaluate(() => ({
        size: getComputedStyle(document.documentElement).fontSize,
        across: document.scrollingElement?.scrollWidth ?? 0,
      }));
      expect(size).toBe(`${FONT}px`);
      expect(across, path).toBeLessThanOrEqual(width);
      expect(await overlaps(page), path).toEqual([]);
    }
  });
}
