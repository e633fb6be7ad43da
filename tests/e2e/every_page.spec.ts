// What holds for every page: axe in both themes, both sizes and both languages; nothing is seen to
// move; nothing scrolls sideways; every control is large enough to touch and reached by keyboard; what a
// mechanism's page computes agrees with the reference.
import { expectNothingSerious, OF_COLOUR } from "./axe.js";
import { test } from "./one_page.js";
import { expect, type Page } from "./page.js";
import { CRAFTED, EVERY_PAGE, openSettled } from "./pages.js";

const SIZES = {
  wide: { width: 1280, height: 860 },
  phone: { width: 390, height: 844 },
} as const;
const THEMES = ["light", "dark"] as const;
/**
 * On a phone a page that is painted while its HTML still arrives may move a part of a formula, and nothing else
 * moves; on a wide screen a line of a caption may.
 */
const MOST_SHIFT = { phone: 0.001, wide: 0.02 } as const;
const TARGET = 44;

/** What has moved since the page was opened: the browser notes it, asked or not. */
const shiftOf = (page: Page) =>
  page.evaluate(
    () =>
      new Promise<number>((resolve) => {
        const watch = (list: { getEntries: () => PerformanceEntryList }) => {
          const shifts = list.getEntries() as (PerformanceEntry & { value: number })[];
          resolve(shifts.reduce((sum, { value }) => sum + value, 0));
        };
        new PerformanceObserver(watch).observe({ type: "layout-shift", buffered: true });
        // Of no shift it says nothing.
        setTimeout(resolve, 100, 0);
      }),
  );

/** Controls that are shown and too small, on a phone. */
const tooSmall = (page: Page) =>
  page.evaluate((least) => {
    const found: string[] = [];
    for (const control of document.querySelectorAll(
      "button, select, input, [role=application], header.site a",
    )) {
      // A radio or checkbox is touched through its label.
      const target = control.closest("label") ?? control;
      const { width, height } = target.getBoundingClientRect();
      const isShown = (control as HTMLElement).checkVisibility();
      if (isShown && (height < least || width < least)) {
        found.push(`${target.textContent?.trim()} ${width}x${height}`);
      }
    }
    return found;
  }, TARGET);

/** What still moves under reduced motion. */
const moving = (page: Page) =>
  page.evaluate(() =>
    [...document.querySelectorAll("*")]
      .filter((element) => {
        const { transitionDuration, animationName } = getComputedStyle(element);
        return transitionDuration !== "0s" || animationName !== "none";
      })
      .map((element) => element.outerHTML.slice(0, 80)),
  );

/** A page that has just been opened in one of the sizes. */
async function expectInPlace(page: Page, size: keyof typeof SIZES): Promise<void> {
  expect(await shiftOf(page), `layout shifts, ${size}`).toBeLessThan(MOST_SHIFT[size]);
  const across = await page.evaluate(() => document.documentElement.scrollWidth);
  expect(across, `sideways, ${size}`).toBeLessThanOrEqual(SIZES[size].width);
  if (size === "phone") expect(await tooSmall(page)).toEqual([]);
}

/**
 * Both themes in both sizes; of mechanisms and of German pages, whose colours are those of the others, each
 * size and each theme once.
 */
const themesOf = (path: string, size: keyof typeof SIZES) =>
  /^de\/|^mechanisms\//.test(path) ? ([size === "wide" ? "dark" : "light"] as const) : THEMES;

async function expectStill(page: Page): Promise<void> {
  await page.emulateMedia({ reducedMotion: "reduce" });
  expect(await moving(page)).toEqual([]);
  const { scrollBehavior } = await page.evaluate(() => ({
    scrollBehavior: getComputedStyle(document.documentElement).scrollBehavior,
  }));
  expect(scrollBehavior).toBe("auto");
}

/** Notes what takes the focus and whether that is seen; names what could and has not. */
function watchFocus() {
  const reached = new Set<Element>();
  const unseen: string[] = [];
  const isFramed = (element: Element) => {
    const { outlineStyle, boxShadow, stroke } = getComputedStyle(element);
    return outlineStyle !== "none" || boxShadow !== "none" || stroke !== "none";
  };
  // A card or a label may be framed in place of what it holds, and inside of a drawing its first shape.
  const isSeen = (element: Element) =>
    [element, element.closest("label, article"), element.querySelector("g > circle")].some(
      (item) => item !== null && isFramed(item),
    );
  document.addEventListener("focusin", ({ target }) => {
    const element = target as Element;
    reached.add(element);
    if (!isSeen(element)) unseen.push(element.outerHTML.slice(0, 120));
  });
  const missed = () =>
    [
      ...document.querySelectorAll<HTMLElement>(
        "a[href], button, input, select, textarea, [tabindex='0']",
      ),
    ]
      .filter(
        (element) => element.checkVisibility() && !element.matches(":disabled, [tabindex='-1']"),
      )
      // Of a group of radio buttons Tab reaches one; arrows lead to the others.
      .filter((element) => {
        const { name, type } = element as HTMLInputElement;
        const group = type === "radio" ? `input[name="${name}"]` : null;
        const same = group ? [...document.querySelectorAll(group)] : [element];
        return !same.some((one) => reached.has(one));
      })
      .map((element) => element.outerHTML.slice(0, 120));
  Object.assign(window, { focusWatch: { unseen, missed, count: () => reached.size } });
}

interface FocusWatch {
  focusWatch: { unseen: string[]; missed: () => string[]; count: () => number };
}

const MOST_STOPS = 400;

/** Tab reaches every control, and the focus is always seen. */
async function expectReachable(page: Page): Promise<void> {
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "no-preference" });
  await page.evaluate(watchFocus);
  for (let stop = 0, before = -1; stop < MOST_STOPS; stop += 20) {
    // Tab is held: the browser repeats it without an answer to each.
    await Promise.all(Array.from({ length: 20 }, () => page.keyboard.down("Tab")));
    await page.keyboard.up("Tab");
    const count = await page.evaluate(() => (window as unknown as FocusWatch).focusWatch.count());
    if (count === before) break;
    before = count;
  }
  const found = await page.evaluate(() => {
    const { unseen, missed } = (window as unknown as FocusWatch).focusWatch;
    return { unseen, missed: missed() };
  });
  expect(found).toEqual({ unseen: [], missed: [] });
}

/** What a crafted page has computed agrees with the float64 reference, as the page itself says. */
async function expectAgreement(page: Page, path: string): Promise<void> {
  const crafted = page.getByTestId("crafted");
  // The patterns are pictures of rules: they have no numbers to compare.
  if (/longformer|bigbird|block_sparse|swin_window|neighborhood/.test(path)) {
    await expect(crafted.getByTestId("readout")).toContainText(/pairs exist|exist\.$/);
    return;
  }
  const figures = crafted.getByTestId(/^(agreement|kernel-error)$/);
  await expect(figures, path).toHaveText(/^(0|\d\.\d\s×\s10⁻([⁶-⁹]|[⁰¹²³⁴-⁹]{2}))$/);
}

// Pages with a figure of their own have their German looked at in language.spec.ts.
const GERMAN = EVERY_PAGE.filter((name) => !CRAFTED.includes(name)).map((name) => `de/${name}`);

for (const path of [...EVERY_PAGE, ...GERMAN]) {
  const agrees = CRAFTED.includes(path) ? ", agreement" : "";
  test(`${path}: axe, sizes, motion, shifts and keyboard${agrees}`, async ({ page }) => {
    test.slow(); // two sizes, two themes, some hundred controls
    for (const size of ["phone", "wide"] as const) {
      await page.setViewportSize(SIZES[size]);
      await page.emulateMedia({ colorScheme: "light", reducedMotion: "no-preference" });
      await openSettled(page, `./${path}`);
      await expectInPlace(page, size);
      await expectStill(page);
      for (const [n, colorScheme] of themesOf(path, size).entries()) {
        await page.emulateMedia({ colorScheme });
        // In the second theme only the rules of colour have something new to say.
        await expectNothingSerious(
          page,
          `${size}, ${colorScheme}`,
          n > 0 ? { rules: OF_COLOUR } : {},
        );
      }
    }
    if (agrees) await expectAgreement(page, path);
    if (!path.startsWith("de/")) await expectReachable(page);
  });
}
