// The state of the page lives in the URL fragment, and a link from a stranger does no harm.
import { test } from "./one_page.js";
import { DemoPage, expect, test as inOwnTab, leave, prepare, readExport } from "./page.js";

inOwnTab("every setting survives a round trip through the address", async ({ page, context }) => {
  const demo = new DemoPage(page);
  await demo.open("text=a+link+keeps+it+all");
  await page.getByRole("radio", { name: "Near neighbours" }).check({ force: true });
  await demo.slider(/Temperature/).fill("70");
  await demo.slider(/Softcap/).fill("40");
  await demo.slider(/ALiBi/).fill("0.25");
  await demo.slider(/Before/).fill("2");
  await demo.slider(/After/).fill("1");
  await demo.slider(/Only the first/).fill("4");
  await demo.matrix.focus();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowRight", " ", "Enter"]) {
    await page.keyboard.press(key);
  }
  await demo.show("Scores");
  const before = await readExport(page);
  await expect.poll(() => page.url()).toContain("view=scores");

  const second = await context.newPage();
  await prepare(second, false);
  await second.goto(page.url());
  await expect(second.getByTestId("caption")).toContainText(/output \d/);
  expect(await readExport(second)).toEqual(before);
  expect(before.pin).not.toBeNull();
  expect(before.keep).toBeDefined();
});

inOwnTab(
  "the default state has a bare address, and typing never fills the history",
  async ({ page }) => {
    const demo = new DemoPage(page);
    await demo.open();
    const start = await page.evaluate(() => history.length);
    await demo.sentence.press("End");
    await demo.sentence.pressSequentially(" And slept.");
    await expect.poll(() => page.url()).toContain("#v=1&text=The+cat");
    await demo.sentence.fill("The cat sat on the mat because the cat was tired.");
    await expect.poll(() => page.url()).not.toContain("#");
    expect(await page.evaluate(() => history.length)).toBe(start);
  },
);

test("a new fragment in the same tab is followed", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("text=first");
  await page.evaluate(() => {
    location.hash = "v=1&text=second+try&past=1";
  });
  await expect(demo.sentence).toHaveValue("second try");
  expect((await readExport(page)).params.causal).toBe(true);
});

test("values outside their range are brought back, nonsense is left out", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(
    "text=one+two&T=1e9&cap=-4&alibi=NaN&head=77&view=secret&left=2.6&hide=zzzz.zz&pin=x",
  );
  const figure = await readExport(page);
  expect(figure.params.scale).toBeCloseTo(0.025, 9);
  expect(figure.params.softcap).toBe(0.5);
  expect(figure.alibiSlope).toBeNull();
  expect(figure.head).toBe(3);
  expect(figure.view).toBe("weights");
  expect(figure.pin).toBeNull();
});

test("markup in a link stays text", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(`text=${encodeURIComponent('<img src=x onerror="window.hit=1">')}`);
  await expect(demo.sentence).toHaveValue('<img src=x onerror="window.hit=1">');
  expect(await page.evaluate(() => "hit" in window)).toBe(false);
});

test("another format and an endless link are explained", async ({ page }) => {
  await page.goto("./#v=9&text=later");
  await expect(page.getByText("This link has format 9; this page reads format 1.")).toBeVisible();
  await leave(page);
  await page.goto(`./#v=1&text=${"x".repeat(5000)}`);
  await expect(page.getByText("This link is too long to be one of ours.")).toBeVisible();
});

for (const [name, title] of [
  ["dot", "Two queries, three keys, by hand"],
  ["lengths", "Softmax that stops at the end of the sentence"],
  ["kernel", "A curve from noisy points"],
] as const) {
  test(`the example ${name} opens by its address`, async ({ page }) => {
    const demo = new DemoPage(page);
    await demo.open(`example=${name}`);
    await expect(page.getByRole("heading", { name: title })).toBeInViewport();
    await expect(page.locator(`#example-${name}`)).toBeFocused();
  });
}

inOwnTab("copy link works without a secure context's clipboard", async ({ page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.addInitScript(() => {
    const { clipboard } = navigator;
    Object.assign(window, { readClipboard: () => clipboard.readText() });
    Object.defineProperty(navigator, "clipboard", { value: undefined });
  });
  const demo = new DemoPage(page);
  await demo.open("text=plain+words");
  await demo.button("Copy link").click();
  await expect(demo.button("Copied")).toBeVisible();
  const read = () =>
    (window as unknown as { readClipboard: () => Promise<string> }).readClipboard();
  expect(await page.evaluate(read)).toBe(page.url());
});

inOwnTab("copy link puts the address on the clipboard", async ({ page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const demo = new DemoPage(page);
  await demo.open("text=to+share&past=1");
  await demo.button("Copy link").click();
  await expect(demo.button("Copied")).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(page.url());
});

test("a focus brings its control into view at once: what is pressed meanwhile stays where it is", async ({
  page,
}) => {
  const demo = new DemoPage(page);
  await demo.open();
  const places = await page.evaluate(async () => {
    const controls = document.querySelectorAll<HTMLElement>("main input[type=range]");
    controls[controls.length - 1]?.focus();
    const seen = new Set<number>();
    for (let frame = 0; frame < 30; frame++) {
      await new Promise(requestAnimationFrame);
      seen.add(Math.round(scrollY));
    }
    return [...seen];
  });
  expect(places).toHaveLength(1);
  expect(places[0]).toBeGreaterThan(300);
});

test("the place of the examples is a link that changes no state", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open("text=kept&past=1");
  await page.getByRole("link", { name: "Examples" }).click();
  await expect(page.locator("#examples")).toBeFocused();
  await expect(demo.sentence).toHaveValue("kept");
  await page.goBack();
  await expect(demo.sentence).toHaveValue("kept");
  expect((await readExport(page)).params.causal).toBe(true);
});
