// npm run bench:web: heed's package against others that compute attention in JavaScript, in Node and in
// Chromium: right first, then timed in turn. Needs dist/ (npm run build).
//   npm run bench:web -- --quick                                  # seconds: does it work?
//   npm run bench:web -- --groups forward,causal --threads 1,2
//   npm run bench:web -- --places node --peers heed,onnxruntime_web_attention --lengths 1024
//   npm run bench:web -- --json report.json                       # heed-bench --from report.json --html page.html
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { coldStartsInChromium, inChromium } from "../web_bench/chromium.mjs";
import { coldStartsInNode, inNode } from "../web_bench/node.mjs";
import { readOptions } from "../web_bench/options.mjs";
import { attentionMaxError, badRows, makeReport, textTable } from "../web_bench/report.mjs";
import { commandLine } from "./command_line.mjs";
import { main } from "./steps.mjs";
import { root } from "./toolchain.mjs";

/** A line on a terminal, rewritten in place. */
function tell(started, what, done, total) {
  if (!process.stderr.isTTY) return;
  const elapsed = (performance.now() - started) / 1000;
  const left = done > 0 ? `, ${Math.round((elapsed / done) * (total - done))} s left` : "";
  process.stderr.write(`\r\x1b[K${done}/${total} ${what}${left}`);
}

const places = {
  node: { run: inNode, coldStarts: coldStartsInNode },
  chromium: { run: inChromium, coldStarts: coldStartsInChromium },
};

const given = await commandLine(import.meta.url, readOptions);

await main(async () => {
  if (!existsSync(join(root, "dist/node.js"))) throw new Error("dist/ is not built: npm run build");
  const { places: names, threads, json, coldStarts, run } = given;
  const options = { ...run, maxError: attentionMaxError() };
  const parts = [];
  for (const name of names) {
    for (const count of threads) {
      const progress = tell.bind(undefined, performance.now());
      const starts = await places[name].coldStarts(count, coldStarts);
      const part = await places[name].run({ ...options, threads: count }, progress);
      parts.push({ ...part, threads: count, starts });
    }
  }
  if (process.stderr.isTTY) process.stderr.write("\r\x1b[K");
  const command = ["npm run bench:web --", ...process.argv.slice(2)].join(" ");
  const report = makeReport({ command, options, parts });
  console.log(textTable(report));
  if (json) writeFileSync(json, `${JSON.stringify(report, null, 1)}\n`);
  const bad = badRows(report);
  if (bad.length > 0) throw new Error(`${bad.length} rows are wrong or failed`);
});
