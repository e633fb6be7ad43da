// For tests that open pages, look and press: those of a worker share a tab, in which the next page costs the
// browser a third of what a new tab and its process cost. Between tests it becomes as new: nothing stored,
// pressed, intercepted or emulated is left. Tests of storage, permissions and the network have page.js.
import type { Page } from "@playwright/test";
import { test as base, leave, prepare } from "./page.js";

let shared: Page | null = null;
let uses = 0;
/** Then the next tab: what pages have left stays in the process of the old one, 20 MB a page. */
const MOST_USES = 40;

async function renew(page: Page, viewport: { width: number; height: number }): Promise<void> {
  await page.unrouteAll();
  await leave(page);
  await page.evaluate(() => localStorage.clear());
  await page.emulateMedia({ colorScheme: null, reducedMotion: null });
  await page.setViewportSize(viewport);
  await page.mouse.move(0, 0);
}

export const test = base.extend({
  page: async ({ browser, baseURL, viewport, keepsOffline }, use) => {
    if (uses === MOST_USES) {
      await shared?.context().close();
      shared = null;
      uses = 0;
    }
    uses++;
    if (!shared) {
      const context = await browser.newContext(baseURL ? { baseURL } : {});
      shared = await context.newPage();
      await prepare(shared, keepsOffline);
    }
    await renew(shared, viewport ?? { width: 1280, height: 860 });
    await use(shared);
  },
});
