// What pages say of themselves, and what a phone or a keyboard meets first.
import { test } from "./one_page.js";
import { DemoPage, expect } from "./page.js";
import { openSettled } from "./pages.js";

test("the first stop of the keyboard leads to the content, and the state stays", async ({
  page,
}) => {
  for (const [path, words] of [
    ["./#v=1&text=one+two", "To the content"],
    ["./de/model.html", "Zum Inhalt"],
    ["./mechanisms/sink.html", "To the content"],
  ] as const) {
    await openSettled(page, path);
    const before = page.url();
    await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
    await page.keyboard.press("Tab");
    const skip = page.getByRole("link", { name: words });
    await expect(skip).toBeFocused();
    await expect(skip).toBeInViewport({ ratio: 1 });
    await page.keyboard.press("Enter");
    await expect(page.locator("main")).toBeFocused();
    await page.keyboard.press("Tab");
    expect(await page.evaluate(() => document.activeElement?.closest("main") !== null)).toBe(true);
    expect(page.url().replace(/#.*/, "")).toBe(before.replace(/#.*/, ""));
    expect(page.url()).not.toContain("#app");
  }
});

test("one token is one, and an emoji too", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("text=one");
  await expect(page.locator("#sentence-help")).toHaveText(/^1 token: /);
  await demo.sentence.fill("👩‍👩‍👧‍👦 loves 🇩🇪");
  await expect(page.locator(".tokens .token")).toHaveText(["👩‍👩‍👧‍👦", "loves", "🇩🇪"]);
});

test("where there is a table nothing asks to point at cells", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open();
  await expect(demo.readout).toContainText("Point at a cell");
  await page.getByLabel("Show as table").first().check();
  await expect(demo.readout).not.toContainText(/Point at|Space/);
});

test("tokens and links to families are large enough for a finger", async ({ phone: page }) => {
  await new DemoPage(page).open("text=a+I+.+no");
  for (const target of await page.locator(".tokens li, dt a").all()) {
    const { width, height } = (await target.boundingBox()) ?? { width: 0, height: 0 };
    const name = await target.textContent();
    expect(width, name ?? "").toBeGreaterThanOrEqual(44);
    expect(height, name ?? "").toBeGreaterThanOrEqual(44);
  }
});

test("on a phone the chosen head is above the heads, and what is written below its button", async ({
  phone: page,
}) => {
  await openSettled(page, "./model.html");
  const heads = page.getByRole("radiogroup", { name: "Heads" });
  const figure = page.locator("figure").filter({ hasText: "Layer 1, head 1" }).first();
  const [above, below] = [await figure.boundingBox(), await heads.boundingBox()];
  expect(above?.y).toBeLessThan(below?.y ?? 0);
  const go = page.getByRole("button", { name: "Go on" });
  await go.tap();
  const written = page.getByTestId("written");
  await expect(written).toContainText(/It writes: .+/);
  await expect(written).toBeInViewport();
  const stop = page.getByRole("button", { name: /^(Stop|Go on)$/ });
  const [button, text] = [await stop.boundingBox(), await written.boundingBox()];
  expect((text?.y ?? 0) - (button?.y ?? 0)).toBeLessThan(100);
});

test("every section of the benchmarks names its runs apart and gives its command", async ({
  page,
}) => {
  await openSettled(page, "./benchmarks.html");
  for (const section of await page.locator("main section").all()) {
    const runs = await section.getByLabel("Run").locator("option").allTextContents();
    expect(new Set(runs).size).toBe(runs.length);
    await expect(section.getByTestId("command").first()).toContainText("heed-bench");
    await expect(section.getByRole("button", { name: "Copy command" })).toBeVisible();
  }
  for (const text of await page.locator("main").getByTestId("readout").allTextContents()) {
    expect(text).not.toMatch(/\d{4,}(\.\d+)? (ms|GFLOP)|\dk\b|\d{5}/);
  }
});

test("the gallery names the year of its newest mechanism", async ({ page }) => {
  await openSettled(page, "./gallery.html");
  const facts = await page.locator(".facts").allTextContents();
  const newest = Math.max(...facts.map((words) => Number(words.match(/\d{4}/)?.[0] ?? 0)));
  await expect(page.locator(".lead")).toContainText(
    `from a regression of 1964 to models of ${newest}.`,
  );
});

test("numbers of edge cases and words of their tables are never broken", async ({ page }) => {
  await page.setViewportSize({ width: 320, height: 800 });
  await openSettled(page, "./edge_cases.html");
  const broken = await page.locator("td, thead th").evaluateAll((cells) =>
    cells.flatMap((cell) => {
      const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
      const found: string[] = [];
      for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        for (const match of (node.textContent ?? "").matchAll(/(?<!\S)[\p{L}\d.]{2,14}(?!\S)/gu)) {
          const range = document.createRange();
          range.setStart(node, match.index);
          range.setEnd(node, match.index + match[0].length);
          const tops = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
          if (tops.size > 1) found.push(match[0]);
        }
      }
      return found;
    }),
  );
  expect(broken).toEqual([]);
});

test("headings step down by one, and no two places of a page have one name", async ({ page }) => {
  for (const path of ["race.html", "edge_cases.html", "benchmarks.html", "model.html"]) {
    await openSettled(page, `./${path}`);
    const levels = await page
      .getByRole("heading")
      .evaluateAll((all) => all.map(({ tagName }) => Number(tagName.slice(1))));
    const skips = levels.filter((level, at) => level > (levels[at - 1] ?? 0) + 1);
    expect(skips, path).toEqual([]);
    const names = await page
      .locator("section[aria-label], nav")
      .evaluateAll((all) => all.map((one) => one.getAttribute("aria-label") ?? one.textContent));
    expect(new Set(names).size, path).toBe(names.length);
  }
});

test("a small matrix is called by the words that stand below it", async ({ page }) => {
  await new DemoPage(page).open();
  for (const thumb of await page.locator("button.thumb").all()) {
    const seen = (await thumb.innerText()).trim().replaceAll(/\s+/g, " ");
    expect(await thumb.getAttribute("aria-label")).toContain(seen);
  }
});

test("before a race there is nothing to save; heads have a key of their colours", async ({
  page,
}) => {
  await openSettled(page, "./race.html");
  await expect(page.getByRole("button", { name: "PNG" })).toBeDisabled();
  for (const path of ["model.html", "training.html"]) {
    await openSettled(page, `./${path}`);
    await expect(page.locator(".colours canvas")).toBeVisible();
  }
});

test("the contents of a long page lead to its parts", async ({ page }) => {
  for (const path of ["edge_cases.html", "benchmarks.html"]) {
    await openSettled(page, `./${path}`);
    const links = page.getByRole("navigation", { name: "On this page" }).getByRole("link");
    const heads = await page.locator("main h2").allTextContents();
    expect(await links.allTextContents()).toEqual(heads);
    await links.last().click();
    await expect(page.locator("main h2").last()).toBeInViewport();
  }
});

test("on paper a page is light and without what is pressed", async ({ page }) => {
  await page.emulateMedia({ colorScheme: "dark" });
  await openSettled(page, "./mechanisms/sink.html");
  const ground = () =>
    page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const dark = await ground();
  await page.emulateMedia({ media: "print" });
  expect(await ground()).not.toBe(dark);
  await expect(page.locator("header.site")).toBeHidden();
  const shown = (selector: string) =>
    page.locator(selector).evaluateAll((all) => all.filter((one) => one.checkVisibility()).length);
  expect(await shown("button:not(:has(canvas, svg))")).toBe(0);
  expect(await shown(".save")).toBe(0);
  expect(await shown("figure canvas, figure svg")).toBeGreaterThan(0);
  await page.emulateMedia({ media: null });
});

test("the row that is read out stands out, and it is said how many rows sum to 1", async ({
  page,
}) => {
  await openSettled(page, "./mechanisms/sink.html");
  await expect(page.getByTestId("panel-sink")).toContainText("0 of 16 rows sum to 1.");
  await openSettled(page, "./mechanisms/scaled_dot_product.html");
  await expect(page.getByTestId("panel-scaled_dot_product")).toContainText(
    /(\d+) of \1 rows sum to 1\./,
  );
});
