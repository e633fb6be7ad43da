// The servers of Vite, for those who work on the site: isolated and under the policy, as the built one is served.
import { fileURLToPath } from "node:url";
import { createServer, preview } from "vite";
import { expect, test } from "./page.js";

const inRoot = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const configFile = inRoot("web/vite.config.ts");
const quiet = { configFile, logLevel: "silent" } as const;
const where = { port: 0, host: "127.0.0.1" };

/** Starts a server; `url` is its first page. */
async function start(kind: "development" | "preview") {
  if (kind === "preview") {
    const server = await preview({
      ...quiet,
      build: { outDir: inRoot("build/web") },
      preview: where,
    });
    return { url: server.resolvedUrls?.local[0] ?? "", close: () => server.close() };
  }
  const server = await (await createServer({ ...quiet, server: where })).listen();
  return { url: server.resolvedUrls?.local[0] ?? "", close: () => server.close() };
}

for (const kind of ["development", "preview"] as const) {
  test(`the ${kind} server isolates the page under a strict policy`, async ({ page }) => {
    test.slow(); // every module is compiled when it is asked for
    const { url, close } = await start(kind);
    try {
      const response = await page.goto(url);
      const policy = response?.headers()["content-security-policy"] ?? "";
      expect(policy).toMatch(/script-src 'self' 'wasm-unsafe-eval'( 'nonce-[\w-]+')?;/);
      expect(policy).not.toMatch(/unsafe-inline|'unsafe-eval'/);
      await expect(page.getByTestId("caption")).toContainText(/output \d/, { timeout: 90_000 });
      expect(await page.evaluate(() => crossOriginIsolated)).toBe(true);
      const margin = await page.evaluate(() => getComputedStyle(document.body).margin);
      expect(margin).toBe("0px");
    } finally {
      await close();
    }
  });
}
