// The API reference, which lies beside the site: under the same policy, with its search.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "./one_page.js";
import { expect } from "./page.js";

test("the API reference is found, linked and searched under the strict policy", async ({
  page,
}) => {
  await page.goto("./de/mechanisms/flash.html");
  await page.getByRole("link", { name: "Referenz des JavaScript-Pakets" }).click();
  await expect(page.getByRole("heading", { name: /heed/ })).toBeVisible();
  await page.goto("./api/modules/heed_worker.html");
  await page.getByRole("link", { name: "RemoteHeed", exact: true }).first().click();
  await expect(page.getByRole("heading", { name: "RemoteHeed" })).toBeVisible();
  await page.locator("#tsd-search-trigger").click();
  await page.locator("#tsd-search-input").fill("KvCacheOptions");
  await expect(page.locator("#tsd-search-results")).toContainText("KvCacheOptions");
});

const cppReference = fileURLToPath(new URL("../../build/web/api-cpp/files.html", import.meta.url));

test("the C++ reference leads from a header to a function and its options", async ({ page }) => {
  test.skip(!existsSync(cppReference), "built without Doxygen");
  await page.goto("./gallery.html");
  await page.getByRole("link", { name: "Reference of the C++ library" }).click();
  await page.getByRole("link", { name: "attention.h", exact: true }).click();
  await expect(page.getByText("one tiled loop with four sockets").first()).toBeVisible();
  await page.getByRole("link", { name: "heed::AttentionOptions", exact: true }).first().click();
  await expect(page.getByRole("link", { name: "softcap" }).first()).toBeVisible();
});

const SITE = fileURLToPath(new URL("../../build/web/", import.meta.url));

/** Links into a page of the same folder that lead to no element of it. */
function deadAnchors(folder: string): string[] {
  const names = readdirSync(join(SITE, folder), { recursive: true, encoding: "utf8" });
  const pages = new Map(
    names
      .filter((name) => name.endsWith(".html"))
      .map((name): [string, string] => {
        const path = join(SITE, folder, name);
        return [path, readFileSync(path, "utf8")];
      }),
  );
  const anchors = new Map(
    [...pages].map(([path, html]): [string, Set<string>] => {
      const found = [...html.matchAll(/\s(?:id|name)="([^"]+)"/g)];
      return [path, new Set(found.map(([, id]) => decodeURIComponent(id as string)))];
    }),
  );
  return [...pages].flatMap(([path, html]) =>
    [...html.matchAll(/href="((?!https?:)[^"#]*)#([^"]+)"/g)]
      .filter(([, file, id]) => {
        const target = anchors.get(file ? join(path, "..", file) : path);
        return target !== undefined && !target.has(decodeURIComponent(id as string));
      })
      .map(([link]) => `${path.slice(SITE.length)}: ${link}`),
  );
}

for (const folder of ["api", "api-cpp"]) {
  test(`every link into a page of ${folder}/ leads to a place in it`, () => {
    expect(deadAnchors(folder)).toEqual([]);
  });
}
