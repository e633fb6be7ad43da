// A mechanism's own page: its words before any script, a live picture that can be read, changed and
// understood, its cost, and code that runs.
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { Page } from "@playwright/test";
import { readMechanisms } from "../../scripts/docs_table.mjs";
import { test } from "./one_page.js";
import { expect, numberOf } from "./page.js";

const ROWS = readMechanisms();
const PACKAGE = fileURLToPath(new URL("../../dist/node.js", import.meta.url));
/** A float32 disagreement, as the page writes it: 2.2 × 10⁻⁷. */
const SMALL_ERROR = /^(0|\d\.\d\s×\s10⁻([⁶-⁹]|[⁰¹²³⁴-⁹]{2}))$/;

async function openMechanism(page: Page, id: string, state = "") {
  await page.goto(`./mechanisms/${id}.html${state}`);
  const panel = page.getByTestId(`panel-${id}`);
  await expect(panel).toBeVisible();
  return panel;
}

test("every mechanism has a page whose words and formula need no script", async ({ request }) => {
  for (const { id, title, summary, source, year } of ROWS) {
    const response = await request.get(`./mechanisms/${id}.html`);
    expect(response.ok(), id).toBe(true);
    const html = (await response.text())
      .replaceAll(/<a [^>]*>|<\/a>/g, "")
      .replaceAll("&amp;", "&");
    for (const text of [
      `<h1 lang="en">${title}</h1>`,
      String(summary).replaceAll("'", "’"),
      source,
      String(year),
    ]) {
      expect(html, `${id}: ${text}`).toContain(text);
    }
    expect(html).toContain("<math");
    expect(html, id).not.toMatch(/<!--\w+-->|__\w+__/);
    expect(html, id).not.toMatch(/<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=/);
  }
});

test("one of each family opens to a picture that agrees with the reference", async ({ page }) => {
  const families = [...new Set(ROWS.map(({ family }) => family))];
  for (const family of families) {
    const id = ROWS.findLast((row) => row.family === family)?.id ?? "";
    const panel = await openMechanism(page, id);
    await expect(page.getByTestId(`error-${id}`)).toHaveText(SMALL_ERROR);
    await expect(panel.locator("canvas").first()).toBeVisible();
  }
});

test("a control changes the picture, the call that is shown and the address", async ({ page }) => {
  const panel = await openMechanism(page, "longformer");
  const canvas = panel.locator(".matrix canvas");
  const before = await canvas.screenshot();
  await expect(panel.locator("pre")).toContainText("reach: 2");
  await panel.getByLabel("reach").fill("1");
  await panel.getByLabel("reach").press("Enter");
  await expect(panel.locator("pre")).toContainText("reach: 1");
  expect(before.equals(await canvas.screenshot())).toBe(false);
  await expect.poll(() => page.url()).toMatch(/#v=1&reach=1$/);
  await expect(page.getByTestId("code")).toContainText("reach: 1,");
  await panel.getByRole("button", { name: "Back to the start" }).click();
  await expect(panel.locator("pre")).toContainText("reach: 2");
  expect(before.equals(await canvas.screenshot())).toBe(true);
});

test("an address restores parameters; what is none is left out", async ({ page }) => {
  const panel = await openMechanism(
    page,
    "attention",
    "#v=1&normalize=top_k&topK=3&secret=1&causal=true",
  );
  await expect(panel.getByLabel("normalize")).toHaveValue("top_k");
  await expect(panel.getByLabel("topK")).toHaveValue("3");
  await expect(panel.getByLabel("causal", { exact: true })).toBeChecked();
  await expect(page.getByTestId("error-attention")).toHaveText(SMALL_ERROR);
  await expect.poll(() => page.url()).not.toContain("secret");
});

test("an expression that hides a key is seen in the picture", async ({ page }) => {
  const panel = await openMechanism(page, "scaled_dot_product");
  await panel.getByLabel("keepMod").fill("kvIndex == 2");
  await panel.getByLabel("keepMod").press("Enter");
  const readout = page.getByTestId("readout-scaled_dot_product");
  await panel.getByRole("application").focus();
  await page.keyboard.press("ArrowRight");
  await expect(readout).toHaveText("query 1, key 1: hidden");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await expect(readout).toHaveText("query 1, key 3: 1.0000");
});

test("the work of the attention-free transformer is that of its example, with a bias", async ({
  page,
}) => {
  await openMechanism(page, "attention_free");
  await expect(page.getByText("quadratic; linear without a bias")).toBeVisible();
  const cost = page.getByTestId("cost");
  await cost.scrollIntoViewIfNeeded();
  await expect(cost.getByText("2 times fewer than exact attention")).toBeVisible();
  await cost.getByLabel("Show as table").check();
  const operations = await cost.locator("tbody td:nth-of-type(1)").allTextContents();
  const [first = 0, second = 0] = operations.map(Number);
  expect(second).toBe(4 * first);
});

test("words bring the controls that they need, and those leave again", async ({ page }) => {
  const panel = await openMechanism(page, "attention");
  await expect(panel.getByLabel("topK")).toHaveCount(0);
  await panel.getByLabel("normalize").selectOption("top_k");
  await expect(panel.getByLabel("topK")).toBeVisible();
  await panel.getByLabel("normalize").selectOption("softmax");
  await expect(panel.getByLabel("topK")).toHaveCount(0);
  await panel.getByLabel("pattern").selectOption("bigbird");
  await expect(panel.getByLabel("randomBlocks")).toBeVisible();
});

test("a row is read out in order: its weights are those of the table, ranks count down", async ({
  page,
}) => {
  const panel = await openMechanism(page, "sparsemax");
  await panel.getByRole("application").focus();
  for (const key of ["ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  const rows = await panel
    .locator(".inspector tbody tr")
    .evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll("th, td")].map((cell) => cell.textContent ?? "")),
    );
  await panel.getByLabel("Show as table").check();
  const cells = await panel.locator(".scroll tbody tr").nth(1).locator("td").allTextContents();
  const wanted = cells.map((text) => (text === "hidden" ? 0 : Number(text))).sort((a, b) => b - a);
  expect(rows.map((row) => Number(row[2]))).toEqual(wanted.slice(0, rows.length));
  expect(rows[0]?.[4]).toBe("1");
  await expect(panel).toContainText(/query 2 weights sum to 1\.000/);
});

test("another head is another picture", async ({ page }) => {
  const panel = await openMechanism(page, "luong_location");
  await expect(panel.getByRole("heading", { name: "Weights, head 1" })).toBeVisible();
  const canvas = panel.locator(".matrix canvas");
  const before = await canvas.screenshot();
  await panel.getByRole("radio", { name: /Head\s2/ }).check({ force: true });
  await expect(panel.getByRole("heading", { name: "Weights, head 2" })).toBeVisible();
  expect(before.equals(await canvas.screenshot())).toBe(false);
});

test("cost against length: quadratic beside linear, as the registry says", async ({ page }) => {
  const slopes: Record<string, number> = {};
  for (const id of ["sigmoid", "retention"]) {
    await openMechanism(page, id);
    const cost = page.getByTestId("cost");
    await cost.scrollIntoViewIfNeeded();
    await expect(cost.getByTestId("readout")).toContainText("8192 tokens:");
    await expect(cost.locator("canvas")).toBeVisible();
    await cost.getByLabel("Show as table").check();
    const flops = (await cost.locator("tbody tr td:nth-child(2)").allTextContents()).map(numberOf);
    expect(flops).toHaveLength(5);
    slopes[id] = Math.log2((flops[4] as number) / (flops[3] as number));
  }
  expect(slopes.sigmoid).toBeCloseTo(2, 1);
  expect(slopes.retention).toBeCloseTo(1, 1);
});

test("the JavaScript that is shown runs as it stands", async ({ page }, info) => {
  for (const id of ["longformer", "graph", "gated_delta_rule", "transformer_block"]) {
    await openMechanism(page, id);
    const code = (await page.getByTestId("code").textContent()) ?? "";
    expect(code).toContain(`heed.run("${id}"`);
    const file = info.outputPath(`${id}.mjs`);
    writeFileSync(file, code.replace('"heed"', JSON.stringify(pathToFileURL(PACKAGE).href)));
    const printed = execFileSync(process.execPath, [file], { encoding: "utf8" });
    expect(printed).toContain("Float32Array");
    expect(printed).not.toContain("NaN");
  }
});

test("the C++ that is shown names what the JavaScript does", async ({ page }) => {
  await openMechanism(page, "longformer");
  await page.getByRole("button", { name: "C++" }).click();
  const code = (await page.getByTestId("code").textContent()) ?? "";
  for (const part of ['"longformer"', '{"reach", 2.0}', "global_tokens", "heed::PlanOutputs"]) {
    expect(code).toContain(part);
  }
});

test("the neighbours of a page are those of the list, and back returns", async ({ page }) => {
  await page.goto(`./mechanisms/${ROWS[0]?.id}.html`);
  const nav = page.getByRole("navigation", { name: "Other mechanisms" });
  await nav.getByRole("link").last().click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(ROWS[1]?.title as string);
  await nav.getByRole("link").first().click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(ROWS[0]?.title as string);
  await page.goBack();
  await page.goBack();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(ROWS[0]?.title as string);
});
