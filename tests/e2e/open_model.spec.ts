// A visitor's own model on the page: files that the test makes, dropped and chosen; hostile ones refused;
// nothing leaves the browser.
import type { Page } from "@playwright/test";
import { float32, gpt2Numbers, type Sizes, safetensors, tensorsOf } from "../js/model_files.js";
import { gpt2Reference } from "../js/model_reference.js";
import { byteTokenizer } from "../js/tokenizer_files.js";
import { test } from "./one_page.js";
import { expect } from "./page.js";

const SIZES: Sizes = {
  layers: 2,
  heads: 3,
  kvHeads: 3,
  headDim: 8,
  embed: 24,
  hidden: 32,
  vocab: 257,
  positions: 64,
};
const TOKENIZER = byteTokenizer([]);
const TEXT = "in the end";

interface Made {
  name: string;
  mimeType: string;
  buffer: Buffer;
}

const made = (name: string, content: string | Uint8Array): Made => ({
  name,
  mimeType: "",
  buffer: Buffer.from(content as Uint8Array),
});
const numbers = gpt2Numbers(SIZES, 11);
const config = made("b.json", JSON.stringify({ model_type: "gpt2", n_head: 3 }));
const tokenizer = made("c.json", JSON.stringify(TOKENIZER));
const weights = async (name = "a.safetensors") => {
  const file = safetensors(tensorsOf(numbers, float32));
  return made(name, new Uint8Array(await file.arrayBuffer()));
};

const box = (page: Page) => page.getByTestId("open-model");
const openButton = (page: Page) => box(page).getByRole("button", { name: "Open the model" });

async function visit(page: Page): Promise<void> {
  await page.goto("./model.html");
  await expect(box(page)).toBeVisible();
  // The site's own model has been read.
  await expect(page.getByTestId("model-status")).toContainText("nats a token");
}

/** Drops files on the box as a file manager does. */
async function drop(page: Page, files: Made[]): Promise<void> {
  const contents = files.map(({ name, buffer }) => ({ name, bytes: [...buffer] }));
  const transfer = await page.evaluateHandle((all) => {
    const data = new DataTransfer();
    for (const { name, bytes } of all) data.items.add(new File([Uint8Array.from(bytes)], name));
    return data;
  }, contents);
  await box(page).dispatchEvent("dragover", { dataTransfer: transfer });
  await box(page).dispatchEvent("drop", { dataTransfer: transfer });
}

const choose = (page: Page, role: string, file: Made) =>
  box(page)
    .getByLabel(new RegExp(`Choose ${role}`))
    .setInputFiles(file);

const meanLoss = (ids: number[]): number => {
  const { logits } = gpt2Reference(numbers, SIZES, ids, { epsilon: 1e-5 });
  const losses = ids.slice(1).map((id, at) => {
    const row = logits[at] as number[];
    const top = Math.max(...row);
    return Math.log(row.reduce((sum, x) => sum + Math.exp(x - top), 0)) + top - (row[id] as number);
  });
  return losses.reduce((a, b) => a + b) / losses.length;
};

test("files that are dropped together are told apart, opened and read, and none is sent", async ({
  page,
}) => {
  await visit(page);
  const sent: string[] = [];
  page.on("request", (request) => {
    if (request.method() !== "GET" || request.postData() !== null) sent.push(request.url());
  });
  await drop(page, [tokenizer, made("merges.txt", "#version: 0.2"), config, await weights()]);
  await expect(page.getByTestId("open-weights")).toContainText("a.safetensors");
  await expect(page.getByTestId("open-tokenizer")).toContainText("c.json");
  await expect(page.getByTestId("open-config")).toContainText("b.json");
  await expect(page.getByTestId("open-status")).toHaveText("Not used: merges.txt");
  await openButton(page).click();
  await expect(page.getByTestId("open-name")).toContainText("a.safetensors");
  await page.getByRole("textbox", { name: "Text" }).fill(TEXT);
  const vocabulary = TOKENIZER.model.vocab;
  const ids = [...TEXT].map((letter) => vocabulary[letter === " " ? "Ġ" : letter] as number);
  const status = page.getByTestId("model-status");
  await expect(status).toContainText(`${ids.length} tokens, ${meanLoss(ids).toFixed(3)} nats`);
  expect(sent).toEqual([]);
});

test("files are chosen one by one, by keyboard too", async ({ page }) => {
  await visit(page);
  await expect(openButton(page)).toBeDisabled();
  await box(page)
    .getByLabel(/Choose Weights/)
    .focus();
  await expect(box(page).getByLabel(/Choose Weights/)).toBeFocused();
  await choose(page, "Weights", await weights("mine.safetensors"));
  await choose(page, "Tokenizer", tokenizer);
  await choose(page, "Sizes", config);
  await openButton(page).focus();
  await page.keyboard.press("Enter");
  await expect(page.getByTestId("open-name")).toContainText("mine.safetensors");
});

test("what is wrong with a file is said, and the page stays as it was", async ({ page }) => {
  await visit(page);
  const shown = await page.getByTestId("model-status").textContent();
  const header = `{"<img src=x onerror=alert(1)>":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`;
  const length = new Uint8Array(8);
  length[0] = header.length;
  const hostile = Buffer.concat([length, Buffer.from(header), Buffer.alloc(4)]);
  const cases: [Made, string][] = [
    [made("x.safetensors", hostile), "“<img src=x onerror=alert(1)>” has 4 bytes"],
    [made("model.gguf", "GGUF\u0003\0\0\0\0\0\0\0"), "(GGUF)"],
    [made("x.safetensors", new Uint8Array(16).fill(255)), "not a safetensors file"],
  ];
  for (const [file, words] of cases) {
    await drop(page, [file]);
    await openButton(page).click();
    await expect(box(page).getByRole("alert")).toContainText(words);
  }
  await expect(page.locator("img[src='x']")).toHaveCount(0);
  await expect(page.getByTestId("model-status")).toHaveText(shown ?? "");
  // Good files after bad ones.
  await drop(page, [await weights(), config, tokenizer]);
  await expect(box(page).getByRole("alert")).toHaveCount(0);
  await openButton(page).click();
  await expect(page.getByTestId("open-name")).toContainText("a.safetensors");
});

test("errors are in the page's language", async ({ page }) => {
  await page.goto("./de/model.html");
  await drop(page, [made("x.safetensors", "nothing")]);
  await page.getByRole("button", { name: "Modell öffnen" }).click();
  await expect(box(page).getByRole("alert")).toHaveText(
    "Das ist keine safetensors-Datei: 7 Bytes sind zu wenig.",
  );
});

test("without a tokenizer numbers are read, and no passage is measured", async ({ page }) => {
  await visit(page);
  await drop(page, [await weights(), config]);
  await openButton(page).click();
  await expect(page.getByTestId("numbers-hint")).toContainText("from 0 to 256");
  await expect(page.getByTestId("own-facts")).toContainText("GPT-2");
  await expect(page.getByTestId("passage-loss")).toHaveCount(0);
  const ids = [3, 1, 4, 1, 5];
  await page.getByRole("textbox", { name: "Text" }).fill(ids.join(" "));
  const status = page.getByTestId("model-status");
  await expect(status).toContainText(`5 tokens, ${meanLoss(ids).toFixed(3)} nats`);
});
