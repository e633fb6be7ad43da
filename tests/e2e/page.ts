// What every browser test shares: a page that must stay quiet, and the words to drive it with.
import {
  test as base,
  type ConsoleMessage,
  expect,
  type Locator,
  type Page,
} from "@playwright/test";
import { attendInFloat64, largestDifference, readExport, readTable } from "../../web/check.mjs";

export type { Page } from "@playwright/test";
export { attendInFloat64, expect, largestDifference, readExport, readTable };

/** heed's documented bound (kAttentionMaxError), relative to the largest value. */
const MAX_ERROR = 2e-6;
/** Logits up to which the bound holds; beyond, rounding grows in proportion. */
const PLAIN_LOGIT = 16;

/** The error allowed to one head of an exported figure. */
export function allowedError(figure: { scores: number[][][]; v: number[][][] }, head: number) {
  const largest = (rows: number[][] = []) => Math.max(...rows.flat().map(Math.abs));
  const logits = Math.max(1, largest(figure.scores[head]) / PLAIN_LOGIT);
  return MAX_ERROR * logits * Math.max(1, largest(figure.v[head]));
}

interface Fixtures {
  /** Whether pages may keep the whole site for offline use, which every test would otherwise fetch again. */
  keepsOffline: boolean;
  /** Console errors and warnings, uncaught errors and policy violations. Must be empty at the end. */
  complaints: string[];
  /** A tab of a phone, of its own, that is touched. */
  phone: Page;
}

/** What is run in every page before its own scripts: violations of the policy become errors of the console. */
export async function prepare(page: Page, keepsOffline: boolean): Promise<void> {
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  if (keepsOffline) return;
  await page.addInitScript(() => Reflect.deleteProperty(Navigator.prototype, "serviceWorker"));
}

/** Adds what a page complains of until the function that it returns is called. */
function listen(page: Page, complaints: string[]): () => void {
  const ofConsole = (message: ConsoleMessage) => {
    if (!["error", "warning"].includes(message.type())) return;
    // A file that is not there is named only by its address.
    complaints.push(`${message.text()} ${message.location().url}`.trim());
  };
  const ofScripts = (error: Error) => complaints.push(String(error));
  page.on("console", ofConsole).on("pageerror", ofScripts);
  return () => page.off("console", ofConsole).off("pageerror", ofScripts);
}

/**
 * To a file of the site that is no page: what is opened next is loaded, whatever its fragment. about:blank
 * would do that too, in another process.
 */
export const leave = (page: Page) => page.goto("./icon.svg");

export const test = base.extend<Fixtures>({
  keepsOffline: [false, { option: true }],
  page: async ({ page, keepsOffline }, use) => {
    await prepare(page, keepsOffline);
    await use(page);
  },
  complaints: [
    async ({ page }, use) => {
      const complaints: string[] = [];
      const silence = listen(page, complaints);
      await use(complaints);
      silence();
      expect(complaints).toEqual([]);
    },
    { auto: true },
  ],
  phone: async ({ browser, keepsOffline, complaints }, use) => {
    const viewport = { width: 390, height: 844 };
    const context = await browser.newContext({ viewport, hasTouch: true, isMobile: true });
    const page = await context.newPage();
    await prepare(page, keepsOffline);
    listen(page, complaints);
    await use(page);
    await context.close();
  },
});

export class DemoPage {
  readonly matrix: Locator;
  readonly readout: Locator;
  readonly caption: Locator;
  readonly sentence: Locator;

  constructor(readonly page: Page) {
    this.matrix = page.locator(".matrix");
    this.readout = page.getByTestId("readout");
    this.caption = page.getByTestId("caption");
    this.sentence = page.getByRole("textbox", { name: "Type a sentence" });
  }

  /** Opens the page with a state, for example "text=one+two&past=1", and waits for numbers. */
  async open(state = ""): Promise<void> {
    await this.page.goto(state ? `./#v=1&${state}` : "./");
    await expect(this.caption).toContainText(/output \d/);
  }

  show(view: string): Promise<void> {
    return this.page.getByRole("group", { name: "Matrix shown" }).getByText(view).click();
  }

  slider(name: string | RegExp): Locator {
    return this.page.getByRole("slider", { name });
  }

  button(name: string): Locator {
    return this.page.getByRole("button", { name, exact: true });
  }

  /** Where the matrix is now, after scrolling it into view. */
  async box(): Promise<{ x: number; y: number; width: number; height: number }> {
    await this.matrix.scrollIntoViewIfNeeded();
    const box = await this.matrix.boundingBox();
    if (!box) throw new Error("the matrix is not visible");
    return box;
  }

  /** A point of a cell relative to the matrix, found by asking the read-out. */
  async cellPoint(query: string, key: string): Promise<{ x: number; y: number }> {
    const box = await this.box();
    const wanted = new RegExp(`^${query}\\s+looks at\\s+${key}\\b`);
    for (let y = box.y + 30; y < box.y + box.height; y += 20) {
      for (let x = box.x + 40; x < box.x + box.width; x += 20) {
        await this.page.mouse.move(x, y);
        const text =
          (await this.readout
            .locator(".names")
            .textContent({ timeout: 50 })
            .catch(() => "")) ?? "";
        if (wanted.test(text.trim())) return { x: x - box.x, y: y - box.y };
        if (!text.trim().startsWith(`${query} `) && text.trim() !== "") break;
      }
    }
    throw new Error(`no cell ${query}, ${key}`);
  }
}

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** A number as a page writes it: in groups of three, with a true minus sign or with a power of ten. */
export function numberOf(text: string | undefined): number {
  if (text === undefined) return Number.NaN;
  const [mantissa, power] = text
    .replaceAll("\u202f", "")
    .replaceAll("−", "-")
    .split("\u00a0×\u00a010");
  const digits = [...(power ?? "⁰")].map((mark) => (mark === "⁻" ? "-" : RAISED.indexOf(mark)));
  return Number(`${mantissa}e${digits.join("")}`);
}
