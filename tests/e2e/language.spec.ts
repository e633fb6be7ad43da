// German: the switch, the address, numbers, and that no page has a word of English left that does not
// say so.
import type { Page } from "@playwright/test";
import { readMechanisms } from "../../scripts/docs_table.mjs";
import { WORDS } from "../../web/src/mechanisms/linear/state.js";
import { misfit, problemsOf, readMessages } from "../../web/vite/messages.mjs";
import { expectNothingSerious, OF_COLOUR } from "./axe.js";
import { test } from "./one_page.js";
import { expect, test as ofStorage } from "./page.js";
import { CRAFTED } from "./pages.js";

const MESSAGES: Record<string, string> = readMessages("de");

/** English messages that read differently in German, without tags and values. */
const ENGLISH = Object.entries(MESSAGES)
  .filter(([message, translation]) => message !== translation && !/[<{]/.test(message))
  .map(([message]) => message.trim())
  .filter((message) => !Object.values(MESSAGES).includes(message));

test("every message has a translation that fits, and none is left over", () => {
  expect(problemsOf("de")).toEqual({ missing: [], unused: [], wrong: [] });
  expect(misfit("all <em>{}</em>", "alle <b>{}</b>")).toContain("in place of");
  expect(misfit("<em>{}</em> keys", "viele <em>{}</em> Keys")).toContain("viele");
});

const wordsIn = (texts: readonly string[]): string[] =>
  texts.flatMap((text) => text.toLowerCase().match(/\p{L}{3,}/gu) ?? []);
const GERMAN_WORDS = new Set(wordsIn(Object.values(MESSAGES)));
/** Those of example sentences, and letters of formulas. */
const WRITTEN = ["and", "because", "blue", "has", "noise", "red", "seed", "the", "which", ...WORDS];
/** What only English messages say shows where a text is none of them. */
const ENGLISH_WORDS = new Set(
  wordsIn(Object.keys(MESSAGES)).filter(
    (word) => !GERMAN_WORDS.has(word) && !WRITTEN.includes(word),
  ),
);

const MECHANISMS = readMechanisms();
/** The longest first: "ReLU attention" ends "Squared ReLU attention". */
const TITLES = MECHANISMS.map(({ title = "" }) => title).sort((a, b) => b.length - a.length);
const IDS = MECHANISMS.map(({ id = "" }) => id);
/** Ids and files, wherever they stand. */
const CODE = /\S*[_/]\S*/g;
/** Tokens of example sentences, which are English. */
const TOKENS = /^[\d ]*(the|all|and|is)$/;
/** Words of an example that sentences of its page quote. */
const QUOTED = WORDS.map((word) => `„${word}“`);
/** An expression or a number as it is typed. */
const EXPRESSION = /\d \* abs\(|^0\.([248]|75)$/;

/** What is read on the page, by eye or ear, and is not said to be English or code. */
const wordsOf = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const apart = "[lang=en], [translate=no], code, pre, math, script, style, textarea, noscript";
    // What visitors and models write is marked where it stands; sentences quote it, whole.
    const written = [...document.querySelectorAll("[translate=no]")].map(
      (element) => element.textContent,
    );
    const quoted = written.map((text) => `„${text}“`);
    const found: string[] = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (!node.parentElement?.closest(apart)) found.push(node.textContent ?? "");
    }
    for (const element of document.querySelectorAll("[aria-label], [title], [placeholder]")) {
      if (element.closest(apart)) continue;
      for (const name of ["aria-label", "title", "placeholder"]) {
        found.push(element.getAttribute(name) ?? "");
      }
    }
    const own = found.map((text) =>
      quoted.reduce((rest, quote) => rest.replaceAll(quote, ""), text),
    );
    return [...new Set(own.map((text) => text.replace(/\s+/g, " ").trim()))].filter(Boolean);
  });

const STOP_WORDS = /\b(the|of|and|is|are|with|from|each|every|this|that|not|its|by)\b/;
const DECIMAL_POINT = /\d\.\d/;
/** Versions, names and code that are the same in every language. */
const SAME =
  /onnxruntime-web 1\.30|PyTorch (vor )?2\.|FlashAttention 2\.1|Apache-2\.0|heed \d|0\.0 |left|commit|gcc|clang|AMD|Intel|^(tiled|interleaved): /;

async function expectGerman(page: Page): Promise<void> {
  const words = await wordsOf(page);
  expect(words.length).toBeGreaterThan(20);
  const own = words
    .map((text) => QUOTED.reduce((rest, quote) => rest.replaceAll(quote, ""), text))
    .map((text) => TITLES.reduce((rest: string, title) => rest.replace(`${title}`, ""), text))
    .filter((text) => ![SAME, TOKENS, EXPRESSION].some((pattern) => pattern.test(text)));
  const english = (text: string) =>
    wordsIn([text.replace(CODE, "")]).some((word) => ENGLISH_WORDS.has(word));
  const wrong = own.filter(
    (text) =>
      ENGLISH.includes(text) ||
      (!IDS.includes(text) && english(text)) ||
      STOP_WORDS.test(text) ||
      DECIMAL_POINT.test(text),
  );
  expect(wrong, page.url()).toEqual([]);
}

const PAGES = [
  ["de/", "caption"],
  ["de/gallery.html", "card-attention"],
  ["de/race.html", "race-status"],
  ["de/training.html", "training-status"],
  ["de/training.html#task=sort", "training-status"],
  ["de/training.html#task=cards", "training-status"],
  ["de/training.html#task=regression", "training-status"],
  ["de/model.html", "predictions"],
  ["de/edge_cases.html", "case-empty_row"],
  ["de/benchmarks.html", "peers"],
  ["de/mechanisms/rwkv7.html", "error-rwkv7"],
] as const;

for (const [path, ready] of PAGES) {
  test(`${path} is German`, async ({ page }) => {
    await page.goto(path);
    await expect(page.locator("html")).toHaveAttribute("lang", "de");
    await expect(page.getByTestId(ready).first()).toContainText(/\d|Noch/);
    await expect(page.getByText(/wird geladen|Vergleich mit/)).toHaveCount(0);
    await expectGerman(page);
  });
}

for (const path of CRAFTED) {
  test(`${path} is German, its table too, fits a phone, and axe finds nothing`, async ({
    page,
  }) => {
    await page.setViewportSize({ width: 390, height: 844 });
    await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
    await page.goto(`de/${path}`);
    const crafted = page.getByTestId("crafted");
    await expect(crafted.first()).toHaveAttribute("aria-busy", "false");
    await page.getByTestId("cost").scrollIntoViewIfNeeded();
    await expect(page.getByTestId("code")).toBeVisible();
    await expectGerman(page);
    const across = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(across).toBeLessThanOrEqual(390);
    // Colours are those of the English page, in every_page.spec.ts; finding them is most of what axe does.
    await expectNothingSerious(page, "as pictures", { without: OF_COLOUR });
    for (const table of await page.getByLabel("Als Tabelle").all()) await table.check();
    await expectGerman(page);
    await expectNothingSerious(page, "as tables", { within: "[data-testid=crafted]" });
  });
}

test("the first page begins with a sentence of its language, and its links say the same in both", async ({
  page,
}) => {
  const sentence = page.locator("#sentence");
  const settled = () => expect(page.getByTestId("caption").first()).toContainText(/\d/);
  await page.goto("./de/");
  await expect(sentence).toHaveValue(/^Die Katze .* müde war\.$/);
  await settled();
  expect(new URL(page.url()).hash).toBe("");
  await expect(page.locator(".tokens li")).toHaveCount(13);
  await page.getByRole("radio", { name: "Das Wort davor" }).check({ force: true });
  await expect(page).toHaveURL(/#v=1&text=Die\+Katze.*&head=2$/);
  const { hash } = new URL(page.url());
  await page.goto(`./${hash}`);
  await expect(sentence).toHaveValue(/^Die Katze/);
  // What a link does not name is as in English: it may come from there.
  await page.goto("./de/#v=1&head=2");
  await expect(sentence).toHaveValue(/^The cat/);
  await settled();
  await page.getByRole("radio", { name: "Ähnliche Buchstaben" }).check({ force: true });
  await expect(page).toHaveURL(/#v=1$/);
});

ofStorage(
  "the switch keeps the state, is remembered, and gives way to an address that says lang",
  async ({ page, baseURL }) => {
    await page.goto("./race.html");
    await page.getByRole("link", { name: "Deutsch" }).click();
    await expect(page).toHaveURL(`${baseURL}de/race.html`);
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("Wettlauf in Ihrem Browser");
    await page.goto("./mechanisms/flash.html#v=1&figure.after-tile=3");
    await expect(page).toHaveURL(`${baseURL}de/mechanisms/flash.html#v=1&figure.after-tile=3`);
    await expect(page.getByTestId("crafted").first().getByTestId("readout")).toContainText(
      "Kachel 4",
    );
    await page.goto("./de?lang=xx");
    await expect(page).toHaveURL(`${baseURL}de/`);
    await page.goto("./de/mechanisms/flash.html?lang=en#v=1&figure.after-tile=2");
    await expect(page).toHaveURL(`${baseURL}mechanisms/flash.html#v=1&figure.after-tile=2`);
  },
);
