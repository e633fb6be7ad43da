// The figures of gates, memories, sets and layers: what a visitor moves, and what is then read. Their numbers
// are compared with plain loops in tests/js/.
import type { Page } from "@playwright/test";
import { test } from "./one_page.js";
import { expect, leave } from "./page.js";

const open = async (page: Page, id: string, fragment = "") => {
  await leave(page);
  await page.goto(`./mechanisms/${id}.html${fragment}`);
  await expect(page.getByTestId("crafted")).toHaveAttribute("aria-busy", "false");
  const crafted = page.getByTestId("crafted");
  return { crafted, readout: crafted.getByTestId("readout") };
};
const choose = (crafted: ReturnType<Page["getByTestId"]>, name: string) =>
  crafted.getByRole("button", { name, exact: true }).click();

test("synthesizer: words move on, and random weights stay", async ({ page }) => {
  const { crafted, readout } = await open(page, "synthesizer");
  await expect(readout).toContainText("random 0 %; of a word’s row");
  await expect(readout).toContainText(/of a word’s row.*dense 0\s%/);
  await choose(crafted, "random");
  await expect(readout).toContainText(
    /Place 6, now “cat”, gives place 6, now “cat”, (0\.\d{3}); before, \1/,
  );
  await crafted.getByRole("slider", { name: "All words move on by" }).fill("1");
  await expect(readout).toContainText("Place 6, now “the”");
});

test("location: the order of the words decides what the same weights find", async ({ page }) => {
  const { crafted, readout } = await open(page, "luong_location");
  await expect(readout).toContainText("6 look mostly at their translation by place, 9 by meaning");
  await choose(crafted, "as in English");
  await expect(readout).toContainText("9 look mostly at their translation by place, 9 by meaning");
  await choose(crafted, "backwards");
  await expect(readout).toContainText("1 look mostly at their translation by place, 9 by meaning");
});

test("gated: an unsure gate lets half of everything through", async ({ page }) => {
  const { crafted, readout } = await open(page, "gated");
  await crafted.getByRole("slider", { name: "How sure the gate is" }).fill("0");
  await expect(readout).toContainText("would have to take 50 % of the weight");
  await expect(readout).toContainText("· 0.500 =");
});

test("attention-free: without reach the bias counts at the place itself alone", async ({
  page,
}) => {
  const { crafted, readout } = await open(page, "attention_free", "#v=1&figure.pin=9,8");
  await expect(readout).toContainText("Channel 1, “cat” (9) and “the” (8): exp(w + k) = exp(3.98");
  await crafted.getByRole("slider", { name: "Pairs whose bias counts" }).fill("1");
  await expect(readout).toContainText("exp(w + k) = exp(0.00");
});

test("external: a unit that all words hear is quiet once weights are normalised twice", async ({
  page,
}) => {
  const { crafted, readout } = await open(page, "external");
  const share = /has (\d+)\s% of all weight by plain softmax, (\d+)\s% normalised twice/;
  const shares = async () =>
    share
      .exec((await readout.textContent()) ?? "")
      ?.slice(1)
      .map(Number) ?? [];
  const [plain = 0, twice = 0] = await shares();
  await crafted.getByRole("slider", { name: "Added to all scores of unit 1" }).fill("8");
  await expect.poll(async () => (await shares())[0]).toBeGreaterThan(plain);
  expect((await shares())[1]).toBe(twice);
  // Two units have no fourth one to be read out.
  await crafted.getByRole("slider", { name: "Units of the memory" }).fill("2");
  await expect(readout).toContainText("“cat” (2) and unit 1:");
});

test("pooling: queries of length 0 gather the mean, and rows are as many as queries", async ({
  page,
}) => {
  const { crafted, readout } = await open(page, "attention_pooling");
  await crafted.getByRole("slider", { name: "Members of the set" }).fill("4");
  await crafted.getByRole("slider", { name: "Queries, one row each" }).fill("2");
  await crafted.getByRole("slider", { name: "Length of the queries" }).fill("0");
  await expect(readout).toContainText(
    /4 members become 2 rows: (\([^)]+\)), \1\. The first query gives its favourite 25\s%/,
  );
});

test("short convolution: a tap is dragged, and stands in the link", async ({ page }) => {
  const { crafted, readout } = await open(page, "causal_conv");
  await choose(crafted, "The token before");
  await expect(readout).toContainText(
    "Token 9: 0.00 · 0.00 + 0.00 · 1.00 + 1.00 · 0.00 + 0.00 · 0.00 = 0.000",
  );
  const tap = crafted.getByRole("slider", { name: "Tap of t − 2" });
  await tap.focus();
  await page.keyboard.press("End");
  await expect(readout).toContainText("1.00 · 1.00 + 1.00 · 0.00 + 0.00 · 0.00 = 1.000");
  await expect(page).toHaveURL(/figure\.taps=0%2C1%2C1%2C0/);
  const again = await open(page, "causal_conv", new URL(page.url()).hash);
  await expect(again.readout).toContainText("= 1.000");
});

test("TTT-Linear: a step of size 0 learns nothing", async ({ page }) => {
  const { crafted, readout } = await open(page, "ttt_linear");
  await expect(readout).toContainText("0.998 at the first reading, 0.344 at the last");
  await crafted.getByRole("slider", { name: "Size of a step" }).fill("0");
  await expect(readout).toContainText(/has loss (\d\.\d+) before its step, \1 after it/);
  await expect(readout).toContainText(/(\d\.\d+) at the first reading, \1 at the last/);
});

test("multi-head: a head that counts 0 adds nothing", async ({ page }) => {
  const { crafted, readout } = await open(page, "multi_head");
  await crafted.getByRole("slider", { name: "The word before" }).fill("0");
  await expect(readout).toContainText(/They add rows of length \d\.\d\d, 0\.00, \d/);
  await expect(page).toHaveURL(/figure\.the-word-before=0/);
});

test("transformer block: with nothing added the stream stays what it was", async ({ page }) => {
  const { crafted, readout } = await open(page, "transformer_block");
  await crafted.getByRole("slider", { name: "Size of what blocks add" }).fill("0");
  await expect(readout).toContainText(
    "attention adds 0.0, the network 0.0. Behind it the cosine with what came in is 1.00",
  );
  await choose(crafted, "Norm after each step");
  await expect(readout).toContainText("a stream of length 5.7");
});

test("perceiver: latents and pixels are the pairs that are computed", async ({ page }) => {
  const { crafted, readout } = await open(page, "perceiver");
  await choose(crafted, "32 × 32");
  await crafted.getByRole("slider", { name: "Latents" }).fill("1");
  await expect(readout).toContainText("1024 pixels and 1 latent are 1024 pairs");
});

test("classifier: idle words drown the mean", async ({ page }) => {
  const { crafted, readout } = await open(page, "attention_classifier");
  await expect(readout).toContainText("Music 95 %");
  await choose(crafted, "mean");
  await crafted.getByRole("slider", { name: "Idle words behind the sentence" }).fill("24");
  await expect(readout).toContainText("Music 62 %");
  await choose(crafted, "Bass that was caught");
  await expect(readout).toContainText(/Music [34]\d\s%/);
});

test("induced set: a point that does not answer is read by all alike", async ({ page }) => {
  const { crafted, readout } = await open(page, "induced_set");
  await expect(readout).toContainText(
    "8 compressed keys in place of 64: the weights are off by 39.4 %",
  );
  await crafted.getByRole("slider", { name: "Inducing points" }).fill("32");
  await expect(readout).toContainText("32 compressed keys in place of 64");
  await crafted.getByRole("slider", { name: "How loudly points answer" }).fill("0");
  await expect(readout).toContainText(/off by [6-9]\d\.\d\s%/);
});
