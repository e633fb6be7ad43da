// The pages of the built site: tests that look at all of them find new ones by themselves.
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, leave, type Page } from "./page.js";

const SITE = fileURLToPath(new URL("../../build/web/", import.meta.url));

const htmlIn = (folder: string): string[] =>
  readdirSync(SITE + folder)
    .filter((name) => name.endsWith(".html"))
    .map((name) => folder + name);

/** Each has a figure of its own. */
export const CRAFTED: readonly string[] = htmlIn("mechanisms/");

/** What pages show when their address asks for it. */
const states = ["sort", "cards", "regression"].map((task) => `training.html#task=${task}`);

/** Every page, below the folder of its language. */
export const EVERY_PAGE: readonly string[] = [...htmlIn(""), ...states, ...CRAFTED];

/** A page of every kind, in English; in German, whose words are longer, what differs by them. */
export const KINDS_OF_PAGES: readonly string[] = [
  ...htmlIn(""),
  "mechanisms/scaled_dot_product.html",
  "mechanisms/delta_rule.html",
  "de/index.html",
  "de/race.html",
  "de/benchmarks.html",
];

/** Opens a page, anew where it is the one that is open, and waits until it has computed. */
export async function openSettled(page: Page, path: string): Promise<void> {
  // To another fragment of the same page a browser only scrolls.
  if (path.includes("#")) await leave(page);
  await page.goto(path);
  await expect(page.locator("h1").first()).toBeVisible();
  await expect(page.locator("#app > *").first()).toBeVisible();
  await expect(page.locator("[aria-busy=true]")).toHaveCount(0);
  await expect(page.getByText(/^(Loading heed …|heed wird geladen …)$/)).toHaveCount(0);
}
