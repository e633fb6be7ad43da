// The API reference, which lies beside the site: under the same policy, with its search.
import { expect, test } from "./page.js";

test("the API reference is found, linked and searched under the strict policy", async ({
  page,
}) => {
  await page.goto("./api/");
  await expect(page.getByRole("heading", { name: /heed/ })).toBeVisible();
  await page.goto("./api/modules/heed_worker.html");
  await page.getByRole("link", { name: "RemoteHeed", exact: true }).first().click();
  await expect(page.getByRole("heading", { name: "RemoteHeed" })).toBeVisible();
  await page.locator("#tsd-search-trigger").click();
  await page.locator("#tsd-search-input").fill("KvCacheOptions");
  await expect(page.locator("#tsd-search-results")).toContainText("KvCacheOptions");
});
