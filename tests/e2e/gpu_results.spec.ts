// A result of heed-bench --device cuda, once one is committed: the page is built here from a made-up one beside
// the committed files. The site is never built so.
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Locator, Page } from "@playwright/test";
import { build } from "vite";
import { readBenchmarks } from "../../web/vite/benchmarks.mjs";
import { GPU, gpuReport } from "../scripts/gpu_report.mjs";
import { expect, leave, numberOf, test } from "./page.js";

// One build for all.
test.describe.configure({ mode: "default" });

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const NAME = "2099-01-02_made-up_cuda";
const report = gpuReport();
let folder = "";

/** What was committed, and the made-up file beside it. */
function benchmarksModule(): string {
  const results = join(folder, "results/");
  cpSync(join(ROOT, "native_bench/results"), results, { recursive: true });
  writeFileSync(join(results, `${NAME}.json`), JSON.stringify(report));
  return `export const benchmarks = ${JSON.stringify(readBenchmarks(results))};`;
}

test.beforeAll(async () => {
  test.setTimeout(300_000); // the whole site is built
  folder = mkdtempSync(join(tmpdir(), "heed-gpu-site-"));
  const id = "virtual:benchmarks";
  const made = {
    name: "made-up-results",
    enforce: "pre" as const,
    resolveId: (source: string) => (source === id ? `\0made-up:${id}` : null),
    load: (source: string) => (source === `\0made-up:${id}` ? benchmarksModule() : null),
  };
  await build({
    configFile: join(ROOT, "web/vite.config.ts"),
    logLevel: "silent",
    plugins: [made],
    build: { outDir: join(folder, "site") },
  });
});

test.afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function open(page: Page, fragment = ""): Promise<void> {
  await page.route("**/made_up/**", (route) => {
    const path = new URL(route.request().url()).pathname.replace("/made_up/", "");
    return route.fulfill({ path: join(folder, "site", path) });
  });
  await page.goto(`./made_up/benchmarks.html${fragment}`);
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
}

async function chooseGpu(section: Locator): Promise<void> {
  const run = section.getByLabel("Run");
  const option = run.locator("option", { hasText: GPU });
  await run.selectOption(await option.getAttribute("value"));
}

async function tableOf(section: Locator): Promise<string[][]> {
  const figure = section.locator("figure").first();
  await figure.getByLabel("Show as table").check();
  const rows = figure.locator("tbody tr");
  return rows.evaluateAll((all) =>
    all.map((row) => [...row.querySelectorAll("th, td")].map((cell) => cell.textContent ?? "")),
  );
}

test("the site itself shows none of it", () => {
  const holds = (assets: string) =>
    readdirSync(assets)
      .filter((name) => name.endsWith(".js"))
      .some((name) => readFileSync(join(assets, name), "utf8").includes(GPU));
  expect(holds(join(folder, "site/assets"))).toBe(true);
  expect(holds(join(ROOT, "build/web/assets"))).toBe(false);
});

test("attention on the GPU stands beside its peers, under the peak of its type", async ({
  page,
}) => {
  await open(page);
  await expect(page.getByText("no result of a GPU is committed")).toHaveCount(0);
  const section = page.getByTestId("peers");
  // The newest run is the first.
  await expect(section.locator("figcaption").first()).toContainText(`${GPU}; GNU 12`);
  await expect(section.locator("figcaption").first()).toContainText("time of events on the GPU");
  await expect(section).toContainText("cudnn is one call of NVIDIA’s cuDNN");
  await section.getByRole("button", { name: "only its past" }).click();
  const wanted = report.rows.filter(
    ({ mechanism, dtype, shape }) =>
      mechanism === "scaled_dot_product" &&
      dtype === "bfloat16" &&
      shape.mask === "causal" &&
      shape.q_len === shape.kv_len,
  );
  const shown = await tableOf(section);
  expect(shown).toHaveLength(wanted.length);
  for (const { peer, shape, ms, gflops } of wanted) {
    const row = shown.find((cells) => cells[0] === peer && numberOf(cells[1]) === shape.kv_len);
    expect(numberOf(row?.[2]) / ms.median).toBeCloseTo(1, 4);
    expect(row?.[6]).toBe(`${Math.round((100 * gflops) / 800_000)}\u00a0%`);
  }
});

test("all calls of a type lie under the roofline of the GPU, and the type is in the link", async ({
  page,
}) => {
  await open(page);
  const section = page.getByTestId("mechanisms");
  await chooseGpu(section);
  await section.getByRole("button", { name: "float32" }).click();
  await expect(page).toHaveURL(new RegExp(`#mechanisms&v=1&run=${NAME}&dtype=float32$`));
  const ofHeed = report.rows.filter(({ peer, dtype }) => peer === "heed" && dtype === "float32");
  const shown = await tableOf(section);
  const nameOf = (row: { case: string }) => row.case.slice(0, -"/cuda".length).replaceAll("/", " ");
  expect(shown.map(([name]) => name)).toEqual(ofHeed.map(nameOf));
  for (const row of ofHeed) {
    const ceiling = Math.min(60_000, (3000 * row.flop) / row.bytes);
    const cells = shown.find(([name]) => name === nameOf(row));
    expect(cells?.[5]).toBe(`${Math.round((100 * row.gflops) / ceiling)}\u00a0%`);
  }
  await leave(page);
  await open(page, `#mechanisms&v=1&run=${NAME}&dtype=float32`);
  await expect(section.getByRole("button", { name: "float32" })).toHaveAttribute(
    "aria-pressed",
    "true",
  );
  await expect(section.locator("figcaption").first()).toContainText(GPU);
});

test("decoding on the GPU is how fast keys are read, cold", async ({ page }) => {
  await open(page);
  const section = page.getByTestId("decode");
  await chooseGpu(section);
  await section.getByRole("button", { name: "bfloat16, 32 sequences" }).click();
  await expect(section.locator("figcaption")).toContainText("cache of the GPU was overwritten");
  const wanted = report.rows.filter(({ shape }) => shape.q_len === 1 && shape.batch === 32);
  const shown = await tableOf(section);
  expect(shown).toHaveLength(wanted.length);
  for (const { peer, shape, bytes, cold_ms } of wanted) {
    const row = shown.find((cells) => cells[0] === peer && numberOf(cells[1]) === shape.kv_len);
    expect(numberOf(row?.[2]) / ((1e-6 * bytes) / cold_ms.median)).toBeCloseTo(1, 4);
    expect(numberOf(row?.[3]) / cold_ms.median).toBeCloseTo(1, 4);
  }
});
