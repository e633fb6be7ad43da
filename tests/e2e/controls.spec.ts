// Every control of the sentence figure, by mouse and by key.
import { test } from "./one_page.js";
import { DemoPage, expect, readExport, readTable } from "./page.js";

const WORDS = "text=one+two+three+four+five";

interface SliderCase {
  name: RegExp;
  /** A position away from the default, and what then differs. */
  position: string;
  shows: string;
  field: (figure: Awaited<ReturnType<typeof readExport>>) => unknown;
  changed: unknown;
  resting: unknown;
}

const SLIDERS: SliderCase[] = [
  {
    name: /Temperature/,
    position: "100",
    shows: "10.00",
    field: (figure) => figure.params.scale,
    changed: 0.025,
    resting: 0.25,
  },
  {
    name: /Softcap/,
    position: "0",
    shows: "0.5",
    field: (figure) => figure.params.softcap ?? null,
    changed: 0.5,
    resting: null,
  },
  {
    name: /ALiBi/,
    position: "1",
    shows: "1.00",
    field: (figure) => figure.alibiSlope,
    changed: 1,
    resting: null,
  },
  {
    name: /Before/,
    position: "1",
    shows: "1",
    field: (figure) => figure.params.window?.left ?? null,
    changed: 1,
    resting: null,
  },
  {
    name: /After/,
    position: "0",
    shows: "0",
    field: (figure) => figure.params.window?.right ?? null,
    changed: 0,
    resting: null,
  },
  {
    name: /Only the first/,
    position: "2",
    shows: "2",
    field: (figure) => figure.keyLength,
    changed: 2,
    resting: null,
  },
];

for (const { name, position, shows, field, changed, resting } of SLIDERS) {
  test(`slider ${name.source} changes the figure; Delete and double-click reset it`, async ({
    page,
  }) => {
    const demo = new DemoPage(page);
    await demo.open(WORDS);
    const slider = demo.slider(name);
    expect(field(await readExport(page))).toBe(resting);
    for (const reset of [() => slider.press("Delete"), () => slider.dblclick()]) {
      await slider.fill(position);
      await expect(slider).toHaveAttribute("aria-valuetext", shows);
      expect(field(await readExport(page))).toBe(changed);
      await reset();
      expect(field(await readExport(page))).toBe(resting);
    }
  });
}

test("presets hide what they say", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  const hiddenCells = async () => {
    await demo.show("Mask");
    await page.getByLabel("Show as table").check();
    const cells = await page.locator(".stage td").allTextContents();
    return cells
      .map((text) => (text.trim() === "hidden" ? "x" : "."))
      .join("")
      .match(/.{5}/g);
  };
  const expected: [string, string[]][] = [
    ["Each word sees only its past", [".xxxx", "..xxx", "...xx", "....x", "....."]],
    ["Only neighbours", ["..xxx", "...xx", "x...x", "xx...", "xxx.."]],
    ["Only the first three words", ["...xx", "...xx", "...xx", "...xx", "...xx"]],
    ["Every word sees every word", [".....", ".....", ".....", ".....", "....."]],
  ];
  for (const [preset, pattern] of expected) {
    await demo.button(preset).click();
    await expect(demo.button(preset)).toHaveAttribute("aria-pressed", "true");
    expect(await hiddenCells()).toEqual(pattern);
  }
});

test("cells are painted by dragging, and shown again by painting over them", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  const from = await demo.cellPoint("two", "one");
  const to = await demo.cellPoint("two", "three");
  await demo.button("Paint cells").click();
  for (const expected of [[0, 0, 0, 1, 1], undefined]) {
    const box = await demo.box();
    await page.mouse.move(box.x + from.x, box.y + from.y);
    await page.mouse.down();
    await page.mouse.move(box.x + to.x, box.y + to.y, { steps: 8 });
    await page.mouse.up();
    expect((await readExport(page)).keep?.[1]).toEqual(expected);
  }
});

test("a token that is tapped says where it looks until it is tapped again", async ({
  phone: page,
}) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  const help = page.locator("#sentence-help");
  const token = page.locator(".tokens li").nth(1);
  await expect(help).toContainText("or tap it");
  await token.tap();
  await expect(help).toHaveText(/^Bars: how much \S+ looks at each token\.$/);
  await token.tap();
  await expect(help).toContainText("or tap it");
  // A cell that is tapped afterwards is read out, and no longer the token.
  await token.tap();
  const box = await demo.box();
  await page.touchscreen.tap(box.x + box.width / 2, box.y + box.height / 2);
  await expect(demo.readout).toContainText("pinned");
});

test("a finger paints too", async ({ phone: page }) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  await demo.button("Paint cells").tap();
  const box = await demo.box();
  await page.touchscreen.tap(box.x + box.width / 2, box.y + box.height / 2);
  const { keep } = await readExport(page);
  expect(keep?.flat().filter((kept: number) => kept === 0)).toHaveLength(1);
});

test("paint can be cleared, and rules become paint", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(`${WORDS}&past=1`);
  await demo.button("Turn rules into paint").click();
  const figure = await readExport(page);
  expect(figure.params.causal).toBe(false);
  expect(figure.keep[0]).toEqual([1, 0, 0, 0, 0]);
  await demo.button("Clear paint").click();
  expect((await readExport(page)).keep).toBeUndefined();
});

test("painting over a rule explains why nothing changes", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(`${WORDS}&past=1`);
  await demo.matrix.focus();
  for (const key of ["ArrowRight", "ArrowRight", " "]) await page.keyboard.press(key);
  await expect(
    page.getByText(/hidden by the rule “only its past”; paint can only hide/),
  ).toBeVisible();
});

test("a row that sees nothing says so, and its output is zero", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(`${WORDS}&first=0&pin=2,1`);
  await expect(demo.readout).toContainText(
    "“two” sees nothing: its weights and its output are zero.",
  );
  const output = await readTable(page, "Output");
  expect(output.flat().every((value: number) => value === 0)).toBe(true);
});

test("heads are chosen from their pictures", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  await page.getByRole("radio", { name: "The word before" }).check({ force: true });
  await expect(demo.caption).toContainText("Head 2 asks for the position just before its own");
  expect((await readExport(page)).head).toBe(1);
});

test("small matrices and tabs show the same eight views", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  for (const view of [
    "Vectors",
    "Queries",
    "Keys",
    "Values",
    "Scores",
    "Mask",
    "Weights",
    "Output",
  ]) {
    await page
      .getByRole("button", { name: new RegExp(`^Show \\S+ ${view.toLowerCase()} large$`) })
      .click();
    const tab = page.getByRole("group", { name: "Matrix shown" }).getByText(view);
    await expect(tab).toHaveAttribute("aria-pressed", "true");
    await expect(demo.matrix).toHaveAttribute("aria-label", new RegExp(`^${view} of head\\s1`));
  }
});

test("hover reads a cell, click pins it until it is clicked again, and the pin survives the pointer leaving", async ({
  page,
}) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  const position = await demo.cellPoint("three", "two");
  const weights = (await readExport(page)).weights[0];
  await demo.matrix.hover({ position });
  await expect(demo.readout).toContainText(weights[2][1].toFixed(4));
  await demo.matrix.click({ position });
  await page.mouse.move(5, 5);
  await expect(demo.readout).toContainText("pinned");
  await expect(demo.readout).toContainText(/rank\s*\d of 5/);
  await demo.matrix.click({ position });
  await page.mouse.move(5, 5);
  await expect(demo.readout).not.toContainText("pinned");
});

test("pointing at a word shows where it looks", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(WORDS);
  await page.getByRole("list", { name: "Tokens" }).getByText("four").hover();
  await expect(page.getByText("Bars: how much four looks at each token.")).toBeVisible();
});

test("reset keeps the sentence and clears the rest", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(`${WORDS}&T=3&past=1&cap=4&pin=2,2&head=3`);
  await demo.button("Reset figure").click();
  await expect.poll(() => page.url().split("#")[1]).toBe("v=1&text=one+two+three+four+five");
});

test("an empty sentence and a long one are explained", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open();
  await demo.sentence.fill("   ");
  await expect(page.getByText("There is nothing to attend to yet: type a word.")).toBeVisible();
  await expect(demo.matrix).toHaveCount(0);
  await demo.sentence.fill("a ".repeat(45));
  await expect(page.getByText(/40 tokens; the last 5 are left out/)).toBeVisible();
  await demo.sentence.fill("back again");
  await expect(demo.matrix).toHaveCount(1);
});

test("a slider's new numbers are on the page in the next frame", async ({ page }) => {
  const demo = new DemoPage(page);
  await demo.open(`${WORDS}&pin=2,3`);
  const seen = await demo.slider(/Temperature/).evaluate(async (slider: HTMLInputElement) => {
    const readout = document.querySelector("[data-testid=readout]");
    const texts: (string | null | undefined)[] = [];
    for (const position of ["10", "40", "70", "95"]) {
      slider.value = position;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      await new Promise((resolve) => requestAnimationFrame(resolve));
      texts.push(readout?.textContent);
    }
    return texts;
  });
  expect(new Set(seen).size).toBe(4);
});
