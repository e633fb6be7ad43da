// Built pages in Chromium, served as a strict host would serve them.
import { type Browser, chromium } from "@playwright/test";
import { serve } from "../../scripts/serve.mjs";
import config from "../e2e/playwright.config.js";

export const launch = (): Promise<Browser> => chromium.launch(config.use?.launchOptions ?? {});

/** What a page wrote into `#result`, and what the browser complained about. */
export interface Shown {
  result: Record<string, unknown>;
  complaints: string[];
}

/** Opens `path` of a folder; `isolated` pages may have threads. */
export async function showPage(
  browser: Browser,
  folder: string,
  path: string,
  isolated: boolean,
): Promise<Shown> {
  const { url, close } = await serve(folder, 0, { isolated });
  try {
    return await showUrl(browser, `${url}${path}`);
  } finally {
    close();
  }
}

export async function showUrl(browser: Browser, url: string): Promise<Shown> {
  const page = await browser.newPage();
  const complaints: string[] = [];
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  try {
    await page.goto(url);
    const output = page.locator("#result:not(:empty)");
    const text = await output.textContent({ timeout: 30_000 }).catch(() => null);
    if (text === null) throw new Error(`${url} shows nothing: ${complaints.join("; ")}`);
    return { result: JSON.parse(text), complaints };
  } finally {
    await page.close();
  }
}
