// Proves that a served page computes real attention: types a sentence, reads the numbers that the
// page shows, and computes them again in float64 with plain loops that share no code with heed.
import { chromium as playwright } from "@playwright/test";

const LAUNCH_ARGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const SENTENCE = "A rose is a rose, is a rose.";
const WAIT_MS = 20_000;
/** Shown numbers have four decimals: half a unit of the last, and float32 rounding. */
const SHOWN_TOLERANCE = 0.5e-4 + 2e-6;
const EXPORT_TOLERANCE = 2e-6;

/** Weights and output of one head, [rows][columns], from the fields of the page's JSON export. */
export function attendInFloat64(figure, head) {
  const [q, k, v] = [figure.q[head], figure.k[head], figure.v[head]];
  const { scale, softcap, causal, window } = figure.params;
  const visible = (i, j) =>
    (!causal || j <= i) &&
    (window?.left === undefined || j >= i - window.left) &&
    (window?.right === undefined || j <= i + window.right) &&
    (figure.keyLength === null || j < figure.keyLength) &&
    (!figure.keep || figure.keep[i][j] === 1);
  const weights = q.map((query, i) => {
    const scores = k.map((key, j) => {
      if (!visible(i, j)) return -Infinity;
      let score = scale * query.reduce((sum, value, d) => sum + value * key[d], 0);
      if (softcap !== undefined) score = softcap * Math.tanh(score / softcap);
      return score - (figure.alibiSlope ?? 0) * Math.abs(i - j);
    });
    const top = Math.max(...scores);
    const exps = scores.map((score) => (score === -Infinity ? 0 : Math.exp(score - top)));
    const total = exps.reduce((sum, value) => sum + value, 0);
    return exps.map((value) => (total === 0 ? 0 : value / total));
  });
  const output = weights.map((row) =>
    v[0].map((_, d) => row.reduce((sum, weight, j) => sum + weight * v[j][d], 0)),
  );
  return { weights, output };
}

/** Largest difference of two matrices; NaN and missing cells count as infinite. */
export function largestDifference(a, b) {
  let largest = a.length === b.length ? 0 : Infinity;
  a.forEach((row, i) => {
    if (row.length !== b[i]?.length) largest = Infinity;
    row.forEach((value, j) => {
      const difference = Math.abs(value - b[i]?.[j]);
      largest = Math.max(largest, Number.isNaN(difference) ? Infinity : difference);
    });
  });
  return largest;
}

/** The numbers of the table view; hidden cells are 0. */
export async function readTable(page, tab) {
  await page.getByRole("button", { name: tab, exact: true }).click();
  const toggle = page.getByLabel("Show as table");
  await toggle.check();
  const rows = await page
    .locator(".stage table tbody tr")
    .evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent ?? "")),
    );
  await toggle.uncheck();
  return rows.map((row) =>
    row.map((text) => (text.trim() === "hidden" ? 0 : Number(text.replace("−", "-")))),
  );
}

/** The JSON export of the figure. */
export async function readExport(page) {
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "JSON", exact: true }).click();
  const stream = await (await download).createReadStream();
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString("utf8"));
}

async function inspect(page, url, expect) {
  const wasm = [];
  page.on("response", (response) => {
    if (response.url().endsWith(".wasm")) wasm.push(response);
  });
  await page.goto(url);
  await page.locator(".matrix canvas").waitFor({ timeout: WAIT_MS });
  await page.getByRole("textbox", { name: "Type a sentence" }).fill(SENTENCE);
  const kernels = wasm.filter((response) => /heed-(simd|relaxed)/.test(response.url()));
  expect(
    kernels.some((response) => response.ok()),
    "the WebAssembly kernels were loaded",
  );
  const backend = /WebAssembly \((plain|relaxed) SIMD, \d+ threads?\)/;
  const caption = page.getByTestId("caption");
  await caption.filter({ hasText: /output \d/ }).waitFor({ timeout: WAIT_MS });
  const words = await caption.textContent();
  expect(backend.test(words), `the caption names the back end: ${words.match(backend)?.[0]}`);

  const figure = await readExport(page);
  expect(figure.text === SENTENCE, `the figure shows what was typed: ${figure.tokens.join(" ")}`);
  for (const head of figure.heads.keys()) {
    const truth = attendInFloat64(figure, head);
    for (const name of ["weights", "output"]) {
      const error = largestDifference(figure[name][head], truth[name]);
      expect(error < EXPORT_TOLERANCE, `head ${head + 1}, ${name}: largest error ${error}`);
    }
  }
  const shown = attendInFloat64(figure, figure.head);
  for (const [tab, name] of [
    ["Weights", "weights"],
    ["Output", "output"],
  ]) {
    const error = largestDifference(await readTable(page, tab), shown[name]);
    expect(error <= SHOWN_TOLERANCE, `${name} shown on the page: largest error ${error}`);
  }
}

/**
 * Loads `url` in headless Chromium and checks it. `chromium` is the path of the browser; absent means
 * HEED_CHROMIUM or /usr/bin/chromium. Prints each finding; throws when one is bad.
 */
export async function check(url, { chromium } = {}) {
  const executablePath =
    typeof chromium === "string" ? chromium : (process.env.HEED_CHROMIUM ?? "/usr/bin/chromium");
  const browser = await playwright.launch({ executablePath, args: LAUNCH_ARGS });
  const messages = [];
  let ok = true;
  const expect = (good, message) => {
    ok &&= Boolean(good);
    messages.push(`${good ? "ok " : "BAD"} ${message}`);
  };
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    const errors = [];
    page.on("console", (message) => {
      if (message.type() === "error" || message.type() === "warning") errors.push(message.text());
    });
    page.on("pageerror", (error) => errors.push(error.message));
    await inspect(page, url, expect);
    expect(
      errors.length === 0,
      `the console is quiet${errors.length ? `: ${errors.join("; ")}` : ""}`,
    );
  } finally {
    await browser.close();
  }
  for (const message of messages) console.log(message);
  if (!ok) throw new Error("the page does not show what it should; see the lines marked BAD");
  return { ok, messages };
}
