// The built page under a strict policy, from any folder, and when WebAssembly cannot be had.
import { readFile, stat } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { DemoPage, expect, readExport, test } from "./page.js";

const SITE = fileURLToPath(new URL("../../build/web", import.meta.url));

test("the policy is strict, the page is isolated, and only its own files are fetched", async ({
  page,
  baseURL,
}) => {
  const requests: string[] = [];
  page.on("request", (request) => requests.push(request.url()));
  const response = await page.goto("./");
  const policy = response?.headers()["content-security-policy"] ?? "";
  expect(policy).toContain("script-src 'self' 'wasm-unsafe-eval'");
  expect(policy).not.toContain("unsafe-inline");
  expect(policy).not.toContain("'unsafe-eval'");
  const demo = new DemoPage(page);
  await expect(demo.caption).toContainText(/output \d/);
  expect(await page.evaluate(() => crossOriginIsolated)).toBe(true);
  const foreign = requests.filter(
    (url) => !url.startsWith(baseURL ?? "") && !url.startsWith("blob:"),
  );
  expect(foreign).toEqual([]);
  const wasm = requests.filter((url) => url.endsWith(".wasm"));
  expect(wasm.filter((url) => /heed-(simd|relaxed)-[^/]*$/.test(url))).toHaveLength(1);
});

test("the page has no inline script and no inline style", async ({ page }) => {
  const response = await page.goto("./");
  const html = (await response?.text()) ?? "";
  expect(html).not.toMatch(/<script(?![^>]*\bsrc=)/);
  expect(html).not.toMatch(/<style|\sstyle=|\son\w+=/);
});

test("the site comes with the licences of what it is made of", async () => {
  expect(await readFile(join(SITE, "LICENSE"), "utf8")).toContain("Apache License");
  const notice = await readFile(join(SITE, "NOTICE"), "utf8");
  for (const name of ["Svelte", "TypeDoc", "Doxygen", "onnxruntime-web"]) {
    expect(notice).toContain(name);
  }
});

/** Serves the site below /some/folder/, without any of the headers of scripts/serve.mjs. */
function plainHost(): Promise<{ server: Server; url: string }> {
  const types: Record<string, string> = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
  };
  const server = createServer(async (request, response) => {
    const path = (request.url ?? "").replace(/[?#].*/, "").replace(/^\/some\/folder\//, "");
    const file = join(SITE, path.replace(/(^|\/)$/, "$1index.html"));
    try {
      await stat(file);
      response.writeHead(200, {
        "Content-Type": types[extname(file)] ?? "application/octet-stream",
      });
      response.end(await readFile(file));
    } catch {
      response.writeHead(404).end();
    }
  });
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" ? address?.port : 0;
      resolve({ server, url: `http://localhost:${port}/some/folder/` });
    });
  });
}

test("it works from a folder of a host that sends no special headers", async ({ page }) => {
  const { server, url } = await plainHost();
  try {
    await page.goto(url);
    const demo = new DemoPage(page);
    await expect(demo.caption).toContainText(/output \d/);
    expect(await page.evaluate(() => crossOriginIsolated)).toBe(false);
    expect((await readExport(page)).weights).toHaveLength(4);
    await page.getByRole("link", { name: "Gallery" }).click();
    await page.getByTestId("card-graph").getByRole("link").click();
    await expect(page).toHaveURL(`${url}mechanisms/graph.html`);
    await expect(page.getByTestId("agreement")).toContainText("10⁻");
    await page.getByRole("link", { name: "Deutsch" }).click();
    await expect(page).toHaveURL(`${url}de/mechanisms/graph.html`);
    await expect(page.getByTestId("agreement")).toContainText("10⁻");
    await page.getByRole("link", { name: "Start", exact: true }).click();
    await expect(page).toHaveURL(`${url}de/`);
    await expect(demo.caption).toContainText(/Ausgabe \d/);
    await page.getByRole("link", { name: "Referenz des JavaScript-Pakets" }).click();
    await expect(page).toHaveURL(`${url}api/index.html`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test("text, controls and colours are there before any WebAssembly", async ({ page }) => {
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  await page.route("**/*.wasm", async (route) => {
    await held;
    await route.continue();
  });
  await page.goto("./");
  await expect(page.getByRole("heading", { name: "What does each word look at?" })).toBeVisible();
  await expect(page.getByText("Loading heed …")).toBeVisible();
  const before = await page.locator(".stage").boundingBox();
  release();
  await expect(page.getByTestId("caption")).toContainText(/output \d/);
  expect(await page.locator(".stage").boundingBox()).toEqual(before);
});

test("without WebAssembly the page says why and computes nothing in its place", async ({
  page,
  complaints,
}) => {
  await page.route("**/*.wasm", (route) => route.fulfill({ status: 404, body: "gone" }));
  await page.goto("./");
  await expect(page.getByRole("alert")).toContainText(/heed could not compute this: .*404/);
  await expect(page.locator(".matrix")).toHaveCount(0);
  // The browser itself reports the missing file; nothing else may be wrong.
  const others = complaints.filter((text) => !text.includes("404"));
  complaints.length = 0;
  expect(others).toEqual([]);
});
