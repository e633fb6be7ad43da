// <attention-map> in a page that has nothing of this site but its one file, under a strict policy.
import type { Page } from "@playwright/test";
import { test } from "./one_page.js";
import { expect } from "./page.js";

const POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:";
const TOKENS = ["a", "rose", "is", "a"];
/** Of head h, query i and key j. */
const weight = (h: number, i: number, j: number) => (j <= i ? 1 / (i + 1 + h) : 0);
const head = (h: number) => TOKENS.map((_, i) => TOKENS.map((__, j) => weight(h, i, j)));
const scores = TOKENS.map((_, i) => TOKENS.map((__, j) => (j <= i ? 0.5 : null)));

const FIGURE = {
  format: "heed-figure-1",
  tokens: TOKENS,
  head: 0,
  weights: [head(0), head(1)],
  scores: [scores, scores],
};

async function openBlog(page: Page, markup: string, file: object = FIGURE) {
  await page.route("**/blog.html", (route) =>
    route.fulfill({
      contentType: "text/html",
      headers: { "Content-Security-Policy": POLICY },
      body: `<!doctype html><title>a blog</title><link rel="icon" href="./icon.svg"><script type="module" src="./attention-map.js"></script>${markup}`,
    }),
  );
  await page.route("**/figure.json", (route) => route.fulfill({ json: file }));
  await page.goto("./blog.html");
  await page.evaluate(() => customElements.whenDefined("attention-map"));
  return page.locator("attention-map");
}

test("a file that the site saved is shown, cell by cell", async ({ page }) => {
  const map = await openBlog(page, '<attention-map src="./figure.json" head="2"></attention-map>');
  const matrix = map.getByRole("application");
  await expect(matrix).toHaveAttribute("aria-label", "Weights of 4 queries and 4 keys");
  await matrix.focus();
  await page.keyboard.press("ArrowDown");
  const readout = map.getByRole("status");
  await expect(readout).toHaveText(`a looks at a: ${weight(1, 0, 0).toFixed(4)}`);
  await page.keyboard.press("ArrowDown");
  await expect(readout).toHaveText(`rose looks at a: ${weight(1, 1, 0).toFixed(4)}`);
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await expect(readout).toHaveText("rose looks at is: hidden");
  const colours = await map.locator("canvas").evaluate((canvas: HTMLCanvasElement) => {
    const { data } = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height) ?? {};
    return new Set(new Uint32Array(data?.buffer as ArrayBuffer)).size;
  });
  expect(colours).toBeGreaterThan(5);
});

test("numbers given by a program are shown, and a pin is told", async ({ page }) => {
  const map = await openBlog(page, "<attention-map></attention-map>");
  await map.evaluate((element) => {
    const told: unknown[] = [];
    Object.assign(window, { told });
    element.addEventListener("pin", (event) => told.push((event as CustomEvent).detail));
    Object.assign(element, {
      data: { rows: ["q"], columns: ["k", "l"], values: [[0.25, 0.75]] },
    });
  });
  await map.getByRole("application").focus();
  for (const key of ["ArrowRight", "ArrowRight", "Enter", "Enter"]) await page.keyboard.press(key);
  expect(await page.evaluate(() => (window as unknown as { told: unknown[] }).told)).toEqual([
    { row: 0, column: 1, value: 0.75 },
    null,
  ]);
});

test("the theme is the system's unless it is given", async ({ page }) => {
  await page.emulateMedia({ colorScheme: "dark" });
  const map = await openBlog(page, '<attention-map src="./figure.json"></attention-map>');
  const background = () => map.evaluate((element) => getComputedStyle(element).backgroundColor);
  await expect.poll(background).toBe("rgb(20, 22, 26)");
  await map.evaluate((element) => element.setAttribute("theme", "light"));
  await expect.poll(background).toBe("rgb(253, 253, 251)");
});

for (const [what, file, message] of [
  ["another format", { format: "secret" }, /format is "secret"/],
  ["a head that is not there", { ...FIGURE, weights: [] }, /has no head 1/],
  [
    "a matrix that does not fit",
    { ...FIGURE, weights: [[[1]]] },
    /values has not one row for each of 4 rows/,
  ],
] as const) {
  test(`${what} is named in the place of the map`, async ({ page }) => {
    const map = await openBlog(page, '<attention-map src="./figure.json"></attention-map>', file);
    await expect(map.getByRole("status")).toHaveText(message);
    await expect(map.getByRole("application")).toBeHidden();
  });
}
