// A page that was never open with a network says so, and goes on when there is one again.
import { expect, type Page, test } from "./page.js";

/** The network is gone for what computes; the page itself was kept. */
async function openWithout(page: Page, path: string, files: string): Promise<void> {
  await page.addInitScript(() => {
    Object.defineProperty(Navigator.prototype, "onLine", {
      configurable: true,
      get: () => !(window as unknown as { gone?: boolean }).gone,
    });
    Object.assign(window, { gone: true });
  });
  await page.route(files, (route) => route.abort("internetdisconnected"));
  await page.goto(path);
}

async function comeBack(page: Page, files: string): Promise<void> {
  await page.unroute(files);
  await page.evaluate(() => Object.assign(window, { gone: false }));
}

const ENGLISH =
  "You are offline, and this part has not been loaded yet. Open this page once with a connection.";
const GERMAN =
  "Sie sind offline, und dieser Teil ist noch nicht geladen. Öffnen Sie diese Seite einmal mit einer Verbindung.";

const CASES = [
  ["training.html", "training-status", "**/*.wasm", ENGLISH, "Try again", /^Not trained yet/],
  ["de/training.html", "training-status", "**/*.wasm", GERMAN, "Noch einmal versuchen", /Noch/],
  ["model.html", "model-status", "**/*.safetensors", ENGLISH, "Try again", /nats a token/],
  ["de/model.html", "model-status", "**/*.safetensors", GERMAN, "Noch einmal versuchen", /\d/],
] as const;

for (const [path, status, files, sentence, again, ready] of CASES) {
  test(`${path} says that it is offline, and tries again`, async ({ page, complaints }) => {
    await openWithout(page, `./${path}`, files);
    await expect(page.getByTestId(status)).toHaveText(sentence);
    await page.getByRole("button", { name: again }).click();
    await expect(page.getByTestId(status)).toHaveText(sentence);
    await comeBack(page, files);
    await page.getByRole("button", { name: again }).click();
    await expect(page.getByTestId(status)).toContainText(ready, { timeout: 30_000 });
    await expect(page.getByRole("button", { name: again })).toHaveCount(0);
    // The browser itself reports what it could not fetch; nothing else may be wrong.
    const others = complaints.filter((text) => !text.includes("ERR_INTERNET_DISCONNECTED"));
    complaints.length = 0;
    expect(others).toEqual([]);
  });
}
