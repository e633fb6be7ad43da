// Parts of pages inside other pages, by their address alone; what was chosen in a figure is in it.
import { test } from "./one_page.js";
import { expect, test as inOwnTab, leave } from "./page.js";

test("a frame of the race has its request, its figure and a way to the whole page", async ({
  page,
}) => {
  await page.goto("./race.html?embed=1");
  await expect(page.locator("header.site")).toBeHidden();
  // It is named, and only for those who hear it.
  await expect(page.getByRole("heading", { level: 1 })).toHaveClass("spoken");
  await expect(page.getByRole("button", { name: "Start the race" })).toBeVisible();
  await expect(page.getByRole("link", { name: /Race attention/ })).toHaveAttribute(
    "href",
    /\/race\.html$/,
  );
});

test("an edge case and its variant are an address, alone in a frame", async ({ page }) => {
  await page.goto("./edge_cases.html#window&variant=2");
  const own = page.getByTestId("case-window");
  await expect(own.getByRole("button", { name: "lastN(2)" })).toHaveAttribute(
    "aria-pressed",
    "true",
  );
  await expect(own).toBeInViewport();
  await page.goto("./edge_cases.html?embed=1#window&variant=2");
  await expect(page.locator("article")).toHaveCount(1);
  await expect(own.getByRole("button", { name: "lastN(2)" })).toHaveAttribute(
    "aria-pressed",
    "true",
  );
  await expect(own.getByTestId("weights")).toContainText("0.5000");
  // What is not one of ours names nothing.
  await leave(page);
  await page.goto("./edge_cases.html?embed=1#window&variant=9");
  await expect(own.getByRole("button", { name: "lastN(2)" })).toHaveAttribute(
    "aria-pressed",
    "false",
  );
});

for (const part of ["peers", "growth", "mechanisms", "decode", "patterns"]) {
  test(`the plots of ${part} stand alone in a frame`, async ({ page }) => {
    await page.goto(`./benchmarks.html?embed=1#${part}`);
    await expect(page.locator("main section")).toHaveCount(1);
    await expect(page.getByTestId(part).locator("canvas").first()).toBeVisible();
    await expect(page.getByText("Seconds mean something")).toBeHidden();
  });
}

inOwnTab("the code to embed a case names the case", async ({ page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.goto("./edge_cases.html");
  const own = page.getByTestId("case-window");
  await own.getByRole("button", { name: "lastN(2)" }).click();
  await own.getByRole("button", { name: "Copy embed" }).click();
  const code = await page.evaluate(() => navigator.clipboard.readText());
  expect(code).toContain("edge_cases.html?embed=1#window&amp;variant=2");
});

test("what is chosen in a crafted figure is in its address", async ({ page }) => {
  await page.goto("./mechanisms/linear.html");
  await page.getByRole("button", { name: "ReLU" }).click();
  await expect(page).toHaveURL(/figure\.features=1/);
  await leave(page);
  await page.goto("./mechanisms/linear.html#v=1&figure.features=2");
  const group = page.getByTestId("crafted").getByRole("group", { name: "Features" });
  await expect(group.getByRole("button").nth(2)).toHaveAttribute("aria-pressed", "true");
});

const MODEL_LINK = "#v=1&text=And+the+men+of+the+city&head=3,2&look=head&token=3&pin=3,2&arcs=1";

test("the language model stands alone in a frame: a text, its heads, one of them as arcs", async ({
  page,
}) => {
  await page.goto(`./model.html?embed=1${MODEL_LINK}`);
  await expect(page.getByTestId("model-status")).toContainText("nats a token", { timeout: 30_000 });
  const tokens = page.getByRole("group", { name: "Tokens of the text" }).getByRole("button");
  await expect(tokens.nth(2)).toHaveAttribute("aria-pressed", "true");
  await expect(page.getByRole("radiogroup", { name: "Heads" }).locator("canvas")).toHaveCount(16);
  const large = page.getByRole("application", { name: /Layer 3, head\s2/ });
  await expect(large).toBeVisible();
  await expect(page.getByLabel("Show as arcs")).toBeChecked();
  await expect(page.getByTestId("readout").first()).toContainText("“·the” looks at “And”");

  // What makes another text or another model of it is on the whole page.
  for (const name of ["Text", "Seed"]) {
    await expect(page.getByLabel(name, { exact: true })).toBeHidden();
  }
  await expect(page.getByTestId("open-model")).toBeHidden();
  // It is named, and only for those who hear it.
  await expect(page.getByRole("heading", { level: 1 })).toHaveClass("spoken");
  const whole = page.getByRole("link", { name: /A small language model/ });
  await expect(whole).toHaveAttribute("href", /\/model\.html#v=1&text=And/);

  // Arcs are of the link, and so is their end.
  await page.getByLabel("Show as arcs").uncheck();
  await expect(page).toHaveURL(/embed=1#v=1&(?!.*arcs)/);
});

inOwnTab(
  "the code to embed the language model has its text and its arcs",
  async ({ page, context }) => {
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.goto(`./model.html${MODEL_LINK}`);
    await expect(page.getByLabel("Show as arcs")).toBeChecked({ timeout: 30_000 });
    await page.getByRole("button", { name: "Copy embed" }).click();
    const code = await page.evaluate(() => navigator.clipboard.readText());
    expect(code).toContain(
      "model.html?embed=1#v=1&amp;text=And+the+men+of+the+city&amp;head=3%2C2",
    );
    expect(code).toContain("&amp;arcs=1");
  },
);

inOwnTab(
  "training stands alone in a frame: its task, what starts it, its curve and its heads",
  async ({ page, context }) => {
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.goto("./training.html#task=sort&mechanism=sigmoid&seed=7");
    await expect(page.getByTestId("training-status")).toContainText("Not trained yet");
    await page.getByRole("button", { name: "Copy embed" }).click();
    const code = await page.evaluate(() => navigator.clipboard.readText());
    const address = /src="([^"]+)"/.exec(code)?.[1]?.replaceAll("&amp;", "&") ?? "";
    expect(address).toContain("training.html?embed=1#");
    await page.goto(address);
    await expect(page.getByTestId("training-status")).toContainText("Not trained yet");
    // It is named, and only for those who hear it.
    await expect(page.getByRole("heading", { level: 1 })).toHaveClass("spoken");
    await expect(page.getByRole("button", { name: "sigmoid" })).toHaveAttribute(
      "aria-pressed",
      "true",
    );
    await expect(page.getByRole("spinbutton")).toHaveValue("7");
    await page.getByRole("button", { name: "One step" }).click();
    await expect(page.getByTestId("training")).toHaveAttribute("data-step", "1");
    await expect(page.getByRole("radiogroup").locator("canvas").first()).toBeVisible();
  },
);
