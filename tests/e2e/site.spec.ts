// The site as a whole: what a first visit loads, that nothing is seen to move, that it works from a
// folder and without a network.
import { gzipSync } from "node:zlib";
import type { Page, Response } from "@playwright/test";
import { expect, test } from "./page.js";

const BUDGET = 150_000;
/** Of a model's files as they are: weights, tokenizer and config come once the page stands. */
const MODEL_BUDGET = 2_200_000;
const MODEL_FILE = /\/(model-[\w-]+\.safetensors|(tokenizer|config)-[\w-]+\.json)$/;

/** Pages of every kind, and the text that is there once they have computed. */
const KINDS = [
  ["./", /output \d/, "caption"],
  ["./gallery.html", /./, "card-attention"],
  ["./race.html", /Nothing has been measured yet/, "race-status"],
  ["./training.html", /Not trained yet/, "training-status"],
  ["./model.html", /nats a token/, "model-status"],
  ["./edge_cases.html", /10⁻|^0$/, "agreement"],
  ["./benchmarks.html", /[GT]FLOP/, "peers"],
  ["./mechanisms/rwkv7.html", /10⁻/, "error-rwkv7"],
  ["./mechanisms/scaled_dot_product.html", /10⁻|^0$/, "agreement"],
  ["./mechanisms/flash.html", /10⁻|^0$/, "agreement"],
  ["./de/training.html#task=regression", /Noch nicht/, "training-status"],
  ["./de/", /Ausgabe \d/, "caption"],
  ["./de/benchmarks.html", /[GT]FLOP/, "peers"],
  ["./de/mechanisms/scaled_dot_product.html", /10⁻|^0$/, "agreement"],
] as const;

for (const [path, text, id] of KINDS) {
  test(`the first load of ${path} is small, and nothing is seen to move`, async ({ page }) => {
    const sizes: Promise<[string, number]>[] = [];
    const ofModel: Promise<number>[] = [];
    const weigh = (response: Response) => {
      const { pathname } = new URL(response.url());
      if (!response.ok() || pathname.endsWith(".wasm")) return;
      if (MODEL_FILE.test(pathname)) {
        // The page takes them as Blobs, which have no body here.
        const sent = response.request().sizes();
        ofModel.push(sent.then(({ responseBodySize }) => responseBodySize));
        return;
      }
      sizes.push(response.body().then((body) => [pathname, gzipSync(body).length]));
    };
    page.on("response", weigh);
    await page.addInitScript(() => {
      const shifts: number[] = [];
      Object.assign(window, { shifts });
      new PerformanceObserver((list) => {
        for (const entry of list.getEntries())
          shifts.push((entry as unknown as { value: number }).value);
      }).observe({ type: "layout-shift", buffered: true });
    });
    await page.goto(path);
    await expect(page.getByTestId(id).first()).toContainText(text);
    // What comes later is kept for offline use, and would not have arrived when the test ends.
    page.off("response", weigh);
    const all = await Promise.all(sizes);
    const total = all.reduce((sum, [, size]) => sum + size, 0);
    expect(total, all.map(([name, size]) => `${name} ${size}`).join("\n")).toBeLessThan(BUDGET);
    expect(all.length).toBeGreaterThan(3);
    const files = await Promise.all(ofModel);
    expect(files).toHaveLength(path.endsWith("model.html") ? 3 : 0);
    const ofFiles = files.reduce((sum, size) => sum + size, 0);
    expect(ofFiles).toBeLessThan(MODEL_BUDGET);
    if (files.length > 0) expect(ofFiles).toBeGreaterThan(MODEL_BUDGET / 2);
    const shifts = await page.evaluate(() => (window as unknown as { shifts: number[] }).shifts);
    expect(shifts.reduce((sum, shift) => sum + shift, 0)).toBeLessThan(0.01);
  });
}

/** Waits until the service worker holds what this visit has used. */
const kept = (page: Page) =>
  expect(page.locator("html")).toHaveAttribute("data-offline", "ready", { timeout: 45_000 });

// The worker answers from what it keeps; a request that it could not answer would be a complaint.
test.describe("offline", () => {
  test.use({ keepsOffline: true });
  for (const [folder, home, caption] of [
    ["", "Home", /output \d/],
    ["de/", "Start", /Ausgabe \d/],
  ] as const) {
    test(`after one visit the site works without a network: /${folder}`, async ({
      page,
      context,
    }) => {
      test.slow(); // the whole site is fetched once
      await page.goto(`./${folder}gallery.html`);
      await expect(page.getByTestId("card-attention").locator("canvas")).toBeVisible();
      await kept(page);
      await context.setOffline(true);
      await page.goto(`./${folder}mechanisms/additive.html`);
      await expect(page.getByRole("heading", { level: 1 })).toHaveText("Additive attention");
      await expect(page.getByTestId("agreement")).toContainText("10⁻");
      expect(await page.evaluate(() => crossOriginIsolated)).toBe(true);
      await page.getByRole("link", { name: home, exact: true }).click();
      await expect(page.getByTestId("caption")).toContainText(caption);
      // The other language was not visited, and is kept as well.
      await page.locator("#language").click();
      await expect(page.getByTestId("caption")).toContainText(folder ? /output \d/ : /Ausgabe \d/);
    });
  }
});

test("from the sentence to a mechanism and back, by links alone", async ({ page }) => {
  await page.goto("./#v=1&text=kept");
  await expect(page.getByTestId("caption")).toContainText(/output \d/);
  await page.getByRole("link", { name: "Recurrent", exact: true }).click();
  await expect(page.getByRole("button", { name: /^Recurrent/ })).toHaveAttribute(
    "aria-pressed",
    "true",
  );
  await page.getByTestId("card-delta_rule").getByRole("link").click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Delta rule");
  await page.goBack();
  await expect(page.getByTestId("card-delta_rule")).toBeVisible();
  await page.goBack();
  await expect(page.getByRole("textbox", { name: "Type a sentence" })).toHaveValue("kept");
});
