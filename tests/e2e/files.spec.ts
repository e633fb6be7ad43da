// Mechanism pages: every figure as a file, the whole state as a link, a figure alone in a frame.
import { readFile } from "node:fs/promises";
import type { Locator, Page } from "@playwright/test";
import { test } from "./one_page.js";
import { expect, test as inOwnTab, leave } from "./page.js";

async function saved(page: Page, place: Locator, kind: string): Promise<Buffer> {
  const download = page.waitForEvent("download");
  await place.getByRole("button", { name: kind, exact: true }).first().click();
  return readFile(await (await download).path());
}

async function openPinned(page: Page) {
  await page.goto("./mechanisms/luong_location.html#v=1&causal=true&head=2&pin=3,2");
  const panel = page.getByTestId("panel-luong_location");
  await expect(page.getByTestId("error-luong_location")).toContainText(/10⁻|^0$/);
  return panel;
}

test("head and pin are in the address, and a link restores them", async ({ page }) => {
  const panel = await openPinned(page);
  await expect(panel.getByRole("heading", { name: "Weights, head 2" })).toBeVisible();
  await expect(page.getByTestId("readout-luong_location")).toHaveText(/^query 3, key 2: 0\.\d{4}$/);
  await panel.getByRole("application").focus();
  for (const key of ["ArrowDown", "Enter"]) await page.keyboard.press(key);
  await expect.poll(() => page.url()).toContain("pin=4%2C2");
  await page.keyboard.press("Escape");
  await expect.poll(() => page.url()).toMatch(/#v=1&causal=true&head=2$/);
});

test("a link of another version, or an endless one, changes nothing", async ({ page }) => {
  for (const fragment of ["#v=2&causal=true&head=2", `#v=1&head=2&pin=${"1".repeat(5000)}`]) {
    await leave(page);
    await page.goto(`./mechanisms/luong_location.html${fragment}`);
    await expect(
      page.getByTestId("panel-luong_location").getByRole("heading", { name: "Weights, head 1" }),
    ).toBeVisible();
  }
});

test("the files of a mechanism say what the page shows", async ({ page }) => {
  const panel = await openPinned(page);
  const report = JSON.parse((await saved(page, panel, "JSON")).toString("utf8"));
  expect(report.format).toBe("heed-mechanism-1");
  expect(report).toMatchObject({
    mechanism: "luong_location",
    head: 1,
    pin: { row: 2, column: 1 },
  });
  expect(report.params.causal).toBe(true);
  expect(report.link).toBe(page.url());
  const { shape, data } = report.results.weights;
  const [, , queries, keys] = shape;
  expect(report.inputs.q.data).toHaveLength(
    report.inputs.q.shape.reduce((a: number, b: number) => a * b),
  );
  // Row 3 of head 2: causal weights that sum to 1.
  const first = (queries + 2) * keys;
  const own: number[] = data.slice(first, first + keys);
  expect(own.reduce((sum, value) => sum + value, 0)).toBeCloseTo(1, 5);
  expect(own.slice(3).every((value) => value === 0)).toBe(true);
  await expect(page.getByTestId("readout-luong_location")).toContainText(
    (own[1] as number).toFixed(4),
  );

  const csv = (await saved(page, panel, "CSV")).toString("utf8").trimEnd().split("\r\n");
  expect(csv).toHaveLength(queries + 1);
  expect(csv[3]?.split(",").slice(1, 4).map(Number)).toEqual(
    own.slice(0, 3).map((value) => Math.fround(value)),
  );
  const svg = (await saved(page, panel, "SVG")).toString("utf8");
  expect(svg).toContain("Pinned. query 3, key 2");
  expect(svg).toContain("head=2");
  const png = await saved(page, panel, "PNG");
  expect(png.subarray(1, 4).toString("latin1")).toBe("PNG");
});

test("a crafted figure saves its picture, its table and its words", async ({ page }) => {
  await page.goto("./mechanisms/flash.html");
  const crafted = page.getByTestId("crafted");
  await expect(page.getByTestId("agreement")).toContainText(/10⁻|^0$/);
  const report = JSON.parse((await saved(page, crafted, "JSON")).toString("utf8"));
  expect(report.format).toBe("heed-table-1");
  expect(report.reading).toBe(await crafted.getByTestId("readout").textContent());
  expect(report.columns).toContain("running max m");
  expect(report.rows).toHaveLength(8);
  const csv = (await saved(page, crafted, "CSV")).toString("utf8").trimEnd().split("\r\n");
  expect(csv[0]).toBe(report.columns.join(","));
  expect(csv).toHaveLength(9);
  // The table stands in place of the picture: the picture is drawn for the file.
  await crafted.getByLabel("Show as table").check();
  const svg = (await saved(page, crafted, "SVG")).toString("utf8");
  expect(svg).toContain("running max m");
  expect(svg).toContain(report.title);
  expect((svg.match(/<rect/g) ?? []).length).toBeGreaterThan(500);
});

test("?embed=1 shows the figure alone, in the state of its link", async ({ page }) => {
  await page.goto("./mechanisms/flash.html?embed=1#v=1&figure.after-tile=1");
  const crafted = page.getByTestId("crafted");
  await expect(crafted.getByTestId("readout")).toContainText("Tile 2, keys 257 to 512");
  for (const name of ["banner", "contentinfo", "navigation"] as const) {
    await expect(page.getByRole(name)).toHaveCount(0);
  }
  await expect(page.getByRole("heading", { level: 1 })).toHaveClass("spoken");
  await expect(page.getByTestId("cost")).toHaveCount(0);
  const whole = page.getByRole("link", { name: await page.title() });
  expect(await whole.getAttribute("href")).toBe("/mechanisms/flash.html#v=1&figure.after-tile=1");
  await page.goto("./mechanisms/luong_location.html?embed=parameters#v=1&head=2");
  await expect(page.getByRole("heading", { name: "Weights, head 2" })).toBeVisible();
  await page.goto("./?embed=1#v=1&text=one+two");
  await expect(page.getByTestId("caption")).toContainText(/output \d/);
  await expect(page.getByRole("heading", { level: 1 })).toHaveClass("spoken");
});

inOwnTab("the code to embed is a frame with this state", async ({ page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const panel = await openPinned(page);
  await panel.getByRole("button", { name: "Copy embed" }).click();
  const code = await page.evaluate(() => navigator.clipboard.readText());
  const src = /^<iframe src="([^"]+)" title="heed"/.exec(code)?.[1]?.replaceAll("&amp;", "&");
  expect(src).toContain("luong_location.html?embed=parameters#v=1&causal=true&head=2&pin=3%2C2");
  await page.goto(src as string);
  await expect(page.getByTestId("readout-luong_location")).toHaveText(/^query 3, key 2: /);
});
