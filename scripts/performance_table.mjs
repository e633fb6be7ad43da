// Writes the tables of docs/performance.md between its markers from the raw results that the page
// names, or checks them (the default). Usage: node scripts/performance_table.mjs [--write]
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const page = join(root, "docs/performance.md");
const marker = /<!-- results: (\S+) threads=(\d+) -->\n[\s\S]*?<!-- end -->/g;

const percent = (value) => `${(100 * value).toFixed(0)} %`;
const ratio = (value) => `${value.toFixed(2)}x`;

/** One line a case: heed's time, speed and fraction of the measured peak, and how much longer peers take. */
function table(file, threads) {
  const { rows, peers, machine, build, probes, command, date } = JSON.parse(
    readFileSync(join(root, "native_bench/results", file), "utf8"),
  );
  const timed = rows.filter((row) => row.status === "timed" && row.threads === threads);
  const others = peers.map((peer) => peer.id).filter((id) => id !== "heed");
  const peak = probes.fma.find((p) => p.threads === threads && p.target === machine.simd.chosen);
  const lines = timed
    .filter((row) => row.peer === "heed")
    .map((row) => {
      const times = others.map((id) => {
        const peer = timed.find((other) => other.peer === id && other.case === row.case);
        return peer ? ratio(peer.ms.median / row.ms.median) : "";
      });
      const { shape } = row;
      const cells = [
        shape.head_dim,
        shape.q_len,
        shape.mask,
        row.ms.median.toPrecision(3),
        row.gflops.toFixed(1),
        percent(row.fraction_of_fma_peak),
        row.max_error.toExponential(0),
        ...times,
      ];
      return `| ${cells.join(" | ")} |`;
    });
  const head = ["head_dim", "length", "mask", "ms", "GFLOP/s", "of peak", "max error", ...others];
  return [
    `${machine.cpu_model}, ${machine.simd.chosen}, ${threads} thread${threads > 1 ? "s" : ""}, measured FMA peak ` +
      `${peak.gflops.toFixed(1)} GFLOP/s; ${build.compiler}, commit ${build.commit}, ${date.slice(0, 10)}.`,
    "",
    `\`${command}\``,
    "",
    `| ${head.join(" | ")} |`,
    `|${head.map(() => "---:").join("|")}|`,
    ...lines,
  ].join("\n");
}

const render = (text) =>
  text.replace(
    marker,
    (_, file, threads) =>
      `<!-- results: ${file} threads=${threads} -->\n${table(file, Number(threads))}\n<!-- end -->`,
  );

export const isUpToDate = () => {
  const text = readFileSync(page, "utf8");
  return render(text) === text;
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = readFileSync(page, "utf8");
  if (process.argv.includes("--write")) writeFileSync(page, render(text));
  else if (!isUpToDate()) {
    console.error("docs/performance.md is out of date: node scripts/performance_table.mjs --write");
    process.exit(1);
  }
}
