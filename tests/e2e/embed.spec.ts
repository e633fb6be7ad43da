// Parts of pages inside other pages, by their address alone; what was chosen in a figure is in it.
import { expect, test } from "./page.js";

test("a frame of the race has its request, its figure and a way to the whole page", async ({
  page,
}) => {
  await page.goto("./race.html?embed=1");
  await expect(page.locator("header.site")).toBeHidden();
  await expect(page.getByRole("heading", { level: 1 })).toBeHidden();
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
  await page.goto("about:blank");
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

test("the code to embed a case names the case", async ({ page, context }) => {
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
  await page.goto("about:blank");
  await page.goto("./mechanisms/linear.html#v=1&figure.features=2");
  const group = page.getByTestId("crafted").getByRole("group", { name: "Features" });
  await expect(group.getByRole("button").nth(2)).toHaveAttribute("aria-pressed", "true");
});
