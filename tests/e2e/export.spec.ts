// Exported files are valid and say what the page said.
import { readFile } from "node:fs/promises";
import type { Locator, Page } from "@playwright/test";
import { test } from "./one_page.js";
import { DemoPage, expect, readExport } from "./page.js";

/** What a button saves, the page's or that of one figure. */
async function download(
  page: Page,
  button: string,
  within: Page | Locator = page,
): Promise<{ name: string; bytes: Buffer }> {
  const event = page.waitForEvent("download");
  await within.getByRole("button", { name: button, exact: true }).click();
  const file = await event;
  return { name: file.suggestedFilename(), bytes: await readFile(await file.path()) };
}

/** How many pixels of a PNG have each colour, 0xRRGGBB. */
const coloursOf = async (page: Page, png: Buffer): Promise<Map<number, number>> =>
  new Map(
    await page.evaluate(async (base64) => {
      const raw = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      const bitmap = await createImageBitmap(new Blob([raw], { type: "image/png" }));
      const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
      context?.drawImage(bitmap, 0, 0);
      const data = context?.getImageData(0, 0, bitmap.width, bitmap.height).data ?? [];
      const seen = new Map<number, number>();
      for (let at = 0; at < data.length; at += 4) {
        const colour = ((data[at] ?? 0) << 16) | ((data[at + 1] ?? 0) << 8) | (data[at + 2] ?? 0);
        seen.set(colour, (seen.get(colour) ?? 0) + 1);
      }
      return [...seen];
    }, png.toString("base64")),
  );

const STATE = "text=salt+%26+pepper&pin=1,3";

test("PNG: a picture of the stated size, not blank", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(STATE);
  const { name, bytes } = await download(page, "PNG");
  expect(name).toBe("heed-weights-head1.png");
  expect(bytes.subarray(0, 8).toString("latin1")).toBe("\x89PNG\r\n\x1a\n");
  expect(bytes.readUInt32BE(16)).toBe(1440);
  expect((await coloursOf(page, bytes)).size).toBeGreaterThan(20);
});

test("SVG: well formed, with labels, pinned cell and caption", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(`${STATE}&past=1`);
  const { bytes } = await download(page, "SVG");
  const text = bytes.toString("utf8");
  const found = await page.evaluate((source) => {
    const svg = new DOMParser().parseFromString(source, "image/svg+xml");
    const texts = [...svg.querySelectorAll("text")].map((node) => node.textContent ?? "");
    return {
      broken: svg.querySelector("parsererror") !== null,
      title: svg.querySelector("title")?.textContent,
      description: svg.querySelector("desc")?.textContent ?? "",
      texts,
      hatched: svg.querySelectorAll('rect[fill="url(#hatch)"]').length,
      scripts: svg.querySelectorAll("script, [onload], style, [style]").length,
    };
  }, text);
  expect(found.broken).toBe(false);
  expect(found.title).toBe("How much each word looks at every other");
  expect(found.description).toMatch(/Pinned\. query salt, key pepper: .*weight/);
  expect(found.description).toContain("Settings: each word sees only its past.");
  expect(found.description).toContain("Scaled dot-product attention");
  expect(found.texts.filter((label) => label === "&")).toHaveLength(2);
  // Three hidden pairs and the key's swatch.
  expect(found.hatched).toBe(4);
  expect(found.scripts).toBe(0);
});

test("CSV: one line per query, every digit, hidden cells empty", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(`text=${encodeURIComponent("=1 , two")}&past=1`);
  const { weights, tokens } = await readExport(page);
  const { bytes } = await download(page, "CSV");
  const lines = bytes.toString("utf8").trimEnd().split("\r\n");
  expect(tokens).toEqual(["=", "1", ",", "two"]);
  // A cell that starts with "=" would be a formula; a comma is quoted.
  expect(lines[0]).toBe(`query/key,'=,1,",",two`);
  expect(lines).toHaveLength(5);
  const second = lines[2]?.split(",") ?? [];
  expect(second.slice(1)).toEqual([String(weights[0][1][0]), String(weights[0][1][1]), "", ""]);
});

test("JSON: everything needed to compute the figure again", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(`${STATE}&left=1&cap=3`);
  const figure = await readExport(page);
  expect(figure.format).toBe("heed-figure-1");
  expect(figure.mechanism).toBe("scaled_dot_product");
  expect(figure.params).toEqual({ scale: 0.25, causal: false, softcap: 3, window: { left: 1 } });
  expect(figure.pin).toEqual({ row: 0, column: 2 });
  for (const name of ["q", "k", "v", "output"]) {
    expect(figure[name]).toHaveLength(4);
    expect(figure[name][0]).toHaveLength(3);
    expect(figure[name][0][0]).toHaveLength(16);
  }
  // Key 0 lies outside the left window of query 2.
  expect(figure.scores[0][2][0]).toBeNull();
});

/** Words of a saved picture that lie beyond its edges or on others, or have a decimal point. */
const misplaced = (page: Page, source: string) =>
  page.evaluate((markup) => {
    const holder = document.createElement("div");
    holder.innerHTML = markup;
    document.body.append(holder);
    const svg = holder.querySelector("svg");
    const frame = svg?.getBoundingClientRect() ?? new DOMRect();
    const words = [...(svg?.querySelectorAll("text") ?? [])].map((text) => ({
      text: text.textContent ?? "",
      box: text.getBoundingClientRect(),
      flat: !text.hasAttribute("transform"),
    }));
    holder.remove();
    const beyond = words.filter(
      ({ box }) => box.left < frame.left || box.right > frame.right + 0.5,
    );
    const flat = words.filter((word) => word.flat);
    const touch = (a: DOMRect, b: DOMRect) =>
      a.left + 1 < b.right - 1 &&
      b.left + 1 < a.right - 1 &&
      Math.abs((a.top + a.bottom - b.top - b.bottom) / 2) < 8;
    const over = flat.filter(({ box }, at) => flat.some((b, n) => n < at && touch(box, b.box)));
    const pointed = words.filter(({ text }) => /^\d+\.\d+( %)?$/.test(text));
    return { count: words.length, wrong: [...beyond, ...over, ...pointed].map(({ text }) => text) };
  }, source);

for (const path of ["benchmarks", "mechanisms/performer", "mechanisms/flash", "mechanisms/quest"]) {
  test(`figures of ${path} are saved whole on a phone, in German`, async ({ page }) => {
    await page.setViewportSize({ width: 390, height: 844 });
    await page.goto(`de/${path}.html`);
    await expect(page.locator("[aria-busy=true]")).toHaveCount(0);
    const figures = page.locator("figure:has(.picture)");
    await expect(figures.locator("canvas").first()).toBeVisible();
    for (const figure of await figures.all()) {
      await figure.scrollIntoViewIfNeeded();
      const text = (await download(page, "SVG", figure)).bytes.toString();
      const { count, wrong } = await misplaced(page, text);
      expect(count).toBeGreaterThan(5);
      expect(wrong).toEqual([]);
    }
  });
}

/** How a drawing of the page differs from what the saved picture has of it. */
const drawn = (page: Page, source: string) =>
  page.evaluate((markup) => {
    const picture = document.querySelector("figure .picture");
    const saved = new DOMParser().parseFromString(markup, "image/svg+xml");
    const shown = [...(picture?.querySelectorAll("svg *") ?? [])];
    const count = (all: Iterable<Element>, name: string) =>
      [...all].filter(({ localName }) => localName === name).length;
    const visible = shown.filter((element) => {
      const { fill, stroke } = getComputedStyle(element);
      return [fill, stroke].some((paint) => !["none", "rgba(0, 0, 0, 0)"].includes(paint));
    });
    const paintsOf =
      (names: string[], of: (element: Element) => (string | null)[]) => (all: Iterable<Element>) =>
        new Set([...all].filter(({ localName }) => names.includes(localName)).flatMap(of));
    const fills = paintsOf(["circle", "text"], (element) => [getComputedStyle(element).fill])(
      visible,
    );
    const savedFills = paintsOf(["circle", "text"], (element) => [element.getAttribute("fill")])(
      saved.querySelectorAll("*"),
    );
    const paths = [...saved.querySelectorAll("polyline")].filter(
      (path) => path.getAttribute("points")?.split(" ").length === 2,
    );
    return {
      circles: count(visible, "circle"),
      savedCircles: count(saved.querySelectorAll("*"), "circle"),
      lines: count(visible, "line"),
      savedLines: paths.length,
      unlike: [...fills].filter((fill) => fill !== "none" && !savedFills.has(fill)),
      words: visible.flatMap((element) =>
        element.localName === "text" ? [element.textContent] : [],
      ),
      savedWords: [...saved.querySelectorAll("text")].map((text) => text.textContent),
    };
  }, source);

for (const theme of ["light", "dark"] as const) {
  test(`figures that are drawings are saved with them, ${theme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme: theme });
    for (const id of ["graph", "rope", "reformer"]) {
      await page.goto(`de/mechanisms/${id}.html`);
      const figure = page.locator("figure:has(.picture svg)").first();
      await expect(page.getByTestId("agreement").first()).toContainText(/10⁻|^0$/);
      const text = (await download(page, "SVG", figure)).bytes.toString();
      const found = await drawn(page, text);
      expect(found.circles, id).toBeGreaterThan(7);
      expect(found.savedCircles, id).toBe(found.circles);
      expect(found.savedLines, id).toBeGreaterThanOrEqual(found.lines);
      expect(found.unlike, id).toEqual([]);
      expect(found.savedWords, id).toEqual(expect.arrayContaining(found.words));
      expect((await misplaced(page, text)).wrong, id).toEqual([]);
    }
  });
}

test("words and bars of a picture that are HTML are saved with it", async ({ page }) => {
  const kept = [
    ["rope", ["pair 1", "pair 4"]],
    ["delta_rule", ["+", "=", "Ben: red", "Ben", "state before"]],
    ["grouped_query", ["1 · set 1", "8 · set 4"]],
    ["hopfield", ["cross", "stripes"]],
    ["hard", ["0.50", "−1.50"]],
  ] as const;
  for (const [id, words] of kept) {
    await page.goto(`mechanisms/${id}.html`);
    const figure = page.locator("figure:has(.picture)").first();
    await expect(page.getByTestId("agreement").first()).toContainText(/10⁻|^0$/);
    const text = (await download(page, "SVG", figure)).bytes.toString();
    for (const word of words) expect(text, id).toContain(`>${word}</text>`);
    // Two rectangles and a dot are a slider.
    if (id === "hard") expect(text.match(/<circle[^>]*stroke-width="2"/g)).toHaveLength(7);
    // The share of a memory: its bar on its track.
    if (id === "hopfield") expect(text).toMatch(/height="4" fill="rgb\(23, 25, 30\)"/);
  }
});

test("PNG: a node of a graph has its colour", async ({ page }) => {
  await page.goto("mechanisms/graph.html");
  const figure = page.locator("figure:has(.picture svg)").first();
  await expect(page.getByTestId("agreement").first()).toContainText(/10⁻|^0$/);
  const { bytes } = await download(page, "PNG", figure);
  const query = (await coloursOf(page, bytes)).get(0xe69f00);
  // A circle of some 15 pixels, at twice the size.
  expect(query).toBeGreaterThan(1500);
});
