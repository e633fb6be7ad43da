// The map of 100 000 x 100 000 weights: moved, looked at closer, read out, as a table; the page stays
// free, and what is out of sight is not computed any more.
import type { Locator, Page } from "@playwright/test";
import { test } from "./one_page.js";
import { expect, test as inOwnTab } from "./page.js";

interface Map {
  long: Locator;
  map: Locator;
  meaning: Locator;
  readout: Locator;
}

async function openMap(page: Page, tokens: RegExp): Promise<Map> {
  await page.goto("./mechanisms/scaled_dot_product.html");
  const long = page.getByTestId("long");
  await long.getByRole("button", { name: tokens }).click();
  const [map, meaning] = [long.getByRole("application"), long.getByTestId("meaning")];
  return { long, map, meaning, readout: long.getByTestId("readout") };
}

/** How many different colours the canvas shows: a map that is not there yet has few. */
const colours = (map: Locator) =>
  map
    .locator("canvas")
    .first()
    .evaluate((canvas: HTMLCanvasElement) => {
      const { width, height } = canvas;
      const pixels = canvas.getContext("2d")?.getImageData(0, 0, width, height).data;
      return new Set(new Uint32Array(pixels?.buffer ?? new ArrayBuffer(0))).size;
    });

/**
 * From now on: how many seconds of CPU time the page's own thread has worked. How long it took would tell more of
 * the machine: a task of 70 ms has lasted 500.
 */
async function watchPage(page: Page): Promise<() => Promise<number>> {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const total = async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    const worked = metrics.find(({ name }) => name === "TaskDuration");
    if (!worked) throw new Error("Chromium does not tell how long tasks took");
    return worked.value;
  };
  const before = await total();
  return async () => (await total()) - before;
}

inOwnTab(
  "100 000 tokens: seen as a whole, then closer, down to single weights",
  async ({ page }) => {
    inOwnTab.slow();
    const { long, map, meaning, readout } = await openMap(page, /100.000 tokens/);
    await expect(meaning).toContainText(/mean of the 256 × 256 weights .* estimated from 8 × 8/);
    expect(await colours(map)).toBeGreaterThan(100);
    const busy = await watchPage(page);

    await map.click({ position: { x: 80, y: 300 } });
    await expect(readout).toContainText(/^Query 5\d.\d{3}, key \d+: weight [\d.]+\s×\s10/);
    await expect(long).toContainText("weights sum to 1.000");
    for (let step = 0; step < 8; step++) await page.keyboard.press("+");
    await expect(meaning).toContainText("A pixel is a weight");
    await expect(readout).toContainText(/^Query 5\d.\d{3}, key \d+: weight [\d.]+\s×\s10/);
    // It takes 0.2: a worker computes the map.
    expect(await busy()).toBeLessThan(0.6);
    await page.keyboard.press("0");
    await expect(meaning).toContainText("256 × 256");
    await page.keyboard.press("Escape");
    await expect(readout).toContainText("only what is in sight is computed");
  },
);

test("a drag moves the map, the wheel looks closer once it is chosen, and the page scrolls before", async ({
  page,
}) => {
  const { map, meaning } = await openMap(page, /4096 tokens/);
  await expect(meaning).toContainText("8 × 8 weights");
  await map.hover({ position: { x: 200, y: 400 } });
  await page.mouse.wheel(0, -300);
  await expect.poll(() => page.evaluate(() => scrollY)).toBeLessThan(10_000);
  await expect(meaning).toContainText("8 × 8 weights");
  await map.click({ position: { x: 200, y: 400 } });
  for (let turn = 0; turn < 3; turn++) await page.mouse.wheel(0, -600);
  await expect(meaning).toContainText("A pixel is a weight");
  const before = await map
    .locator("canvas")
    .first()
    .evaluate((canvas: HTMLCanvasElement) => canvas.toDataURL());
  const box = await map.boundingBox();
  if (!box) throw new Error("no map");
  await page.mouse.move(box.x + 300, box.y + 300);
  await page.mouse.down();
  await page.mouse.move(box.x + 200, box.y + 240, { steps: 4 });
  await page.mouse.up();
  await expect
    .poll(() =>
      map
        .locator("canvas")
        .first()
        .evaluate((canvas: HTMLCanvasElement) => canvas.toDataURL()),
    )
    .not.toBe(before);
});

test("the table is of what is in sight, and a place is reached by its numbers", async ({
  page,
}) => {
  const { long, map, meaning, readout } = await openMap(page, /4096 tokens/);
  await expect(meaning).toContainText("all of them were computed");
  await long.getByLabel("Show as table").check();
  const cells = long.locator("figure table tbody td");
  await expect(cells).toHaveCount(64);
  await expect(long.locator("figure table tbody tr").first()).toContainText("query 1 to 512");
  // Above the diagonal everything is hidden, below nothing is.
  await expect(cells.nth(1)).toHaveText("hidden");
  await expect(cells.nth(8)).toHaveText(/^\d\.\d\s×\s10/);
  await long.getByLabel("Show as table").uncheck();
  await long.getByLabel("Query").fill("3000");
  await long.getByLabel("Key", { exact: true }).fill("12");
  await long.getByRole("button", { name: "Go there" }).click();
  await expect(readout).toContainText(/^Query 3000, key 12: weight [\d.]+\s×\s10/);
  await expect(map).toBeVisible();
  await expect(long.locator(".inspector .focus")).toContainText("key 12");
});

test("two fingers look closer", async ({ phone: page }) => {
  const { map, meaning } = await openMap(page, /4096 tokens/);
  await expect(meaning).toContainText("all of them");
  await map.scrollIntoViewIfNeeded();
  const box = await map.boundingBox();
  if (!box) throw new Error("no map");
  const session = await page.context().newCDPSession(page);
  const fingers = (apart: number) =>
    [-1, 1].map((sign, id) => ({ id, x: box.x + 180 + sign * apart, y: box.y + 200 }));
  const touch = (type: "touchStart" | "touchMove" | "touchEnd", apart: number) =>
    session.send("Input.dispatchTouchEvent", {
      type,
      touchPoints: type === "touchEnd" ? [] : fingers(apart),
    });
  await touch("touchStart", 20);
  for (const apart of [40, 80, 120, 160]) await touch("touchMove", apart);
  await touch("touchEnd", 0);
  await expect(meaning).toContainText(/2 × 2 weights|A pixel is a weight/);
});

test("what computes it is said in German on a German page", async ({ page }) => {
  await page.goto("./de/mechanisms/scaled_dot_product.html#v=1&figure.map=4096,2000,1000,512");
  await expect(page.getByTestId("long")).toContainText(
    /in einem Worker, (einfaches|relaxed|plain) SIMD, (1 Thread|\d+ Threads)\./,
  );
});
