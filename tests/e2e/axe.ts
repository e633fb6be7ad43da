// axe-core in the page itself: loaded once a document, and asked for violations alone. AxeBuilder loads it for
// every question and puts together what it found in frames, which these pages do not have.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type AxeCore from "axe-core";
import { expect, type Page } from "./page.js";

const require = createRequire(import.meta.url);
// It comes with @axe-core/playwright, in the version that this asks for.
const ofPlaywright = createRequire(require.resolve("@axe-core/playwright"));
const source = readFileSync(ofPlaywright.resolve("axe-core/axe.min.js"), "utf8");

/** Rules whose answer depends on the theme; nothing but colours does. */
export const OF_COLOUR = ["color-contrast", "link-in-text-block"];

interface Asked {
  /** Absent: all rules. */
  rules?: readonly string[];
  /** Rules of those that are not asked. */
  without?: readonly string[];
  /** A selector; absent: the document. */
  within?: string;
}

/** Nothing that axe calls serious or critical. `where` is said when there is. */
export async function expectNothingSerious(page: Page, where: string, asked: Asked = {}) {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(source);
  const serious = await page.evaluate(async ({ rules, without = [], within }) => {
    const { axe } = window as unknown as { axe: typeof AxeCore };
    const { violations } = await axe.run(within ?? document, {
      resultTypes: ["violations"],
      ...(rules && { runOnly: [...rules] }),
      rules: Object.fromEntries(without.map((rule) => [rule, { enabled: false }])),
    });
    const isSerious = ({ impact }: AxeCore.Result) => impact === "serious" || impact === "critical";
    return violations.filter(isSerious).map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
  }, asked);
  expect(serious, where).toEqual([]);
}
