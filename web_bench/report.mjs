// The report of a run: JSON of heed-bench's family, and tables for people.
import { readFileSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { capture } from "../scripts/process.mjs";
import { root } from "../scripts/toolchain.mjs";
import { summarize } from "./measure.mjs";

const readConstant = (file, expression) => {
  const match = expression.exec(readFileSync(join(root, file), "utf8"));
  if (match === null) throw new Error(`${file}: no match of ${expression}`);
  return Number(match[1]);
};

/** The version that all reports of heed-bench share. */
export const schemaVersion = () =>
  readConstant("native_bench/report.h", /kJsonSchemaVersion = (\d+);/);

/** The accuracy that every program is held to. */
export const attentionMaxError = () =>
  readConstant("cpp/include/heed/attention.h", /kAttentionMaxError = ([0-9.e-]+);/);

function commit() {
  const hash = capture("git", ["rev-parse", "--short=12", "HEAD"], { cwd: root }) ?? "";
  const paths = ["cpp", "bindings", "web_bench"];
  const changes = capture("git", ["status", "--porcelain", "--", ...paths], { cwd: root });
  return hash && changes ? `${hash}+dirty` : hash;
}

const packages = ["onnxruntime-web", "onnxruntime-node", "@tensorflow/tfjs-backend-wasm"];

const versionOf = (name) =>
  JSON.parse(readFileSync(join(root, "node_modules", name, "package.json"), "utf8")).version;

/** What a start costs, by place and thread count. */
function coldStartsOf(parts) {
  return parts
    .filter(({ starts }) => starts.length > 0)
    .map(({ place, threads, starts }) => ({
      place,
      threads,
      reps: starts.length,
      load_ms: summarize(starts.map(({ load_ms }) => load_ms)),
      first_call_ms: summarize(starts.map(({ first_call_ms }) => first_call_ms)),
    }));
}

/** @param parts {place, engine, threads, starts, result: {rows, peers, variant, simd, peaks}}[] */
export function makeReport({ command, options, parts }) {
  const { plan, seed } = options;
  const engines = [...new Set(parts.map(({ engine }) => engine))];
  return {
    schema: "heed-bench-web",
    schema_version: schemaVersion(),
    date: new Date().toISOString().replace(/\.\d+Z$/, "Z"),
    command,
    machine: {
      system: `${os.type()} ${os.release()} ${os.machine()}`,
      cpu_model: os.cpus()[0]?.model ?? "",
      cores: os.availableParallelism(),
      memory_bytes: os.totalmem(),
      load_average: os.loadavg()[0],
      simd: {
        chosen: parts[0].result.simd,
        supported: [...new Set(parts.map(({ result }) => result.simd))],
      },
    },
    build: {
      compiler: engines.join(", "),
      flags: "",
      build_type: [...new Set(parts.map(({ result }) => result.variant))].join(", "),
      commit: commit(),
      packages: Object.fromEntries(packages.map((name) => [name, versionOf(name)])),
    },
    flop_formula:
      "2 per multiply-add of the matrix products over the pairs of query and key that are seen; exponentials, masks and normalisation are free",
    inputs: { distribution: "normal", seed },
    plan: { clock: "wall", ...plan },
    probes: {
      fma: parts.flatMap(({ place, result }) => result.peaks.map((peak) => ({ place, ...peak }))),
      stream: [],
    },
    peers: parts[0].result.peers,
    cold_starts: coldStartsOf(parts),
    rows: parts.flatMap(({ result }) => result.rows),
  };
}

const padded = (lines) => {
  const widths = lines[0].map((_, column) =>
    Math.max(...lines.map((line) => `${line[column]}`.length)),
  );
  const left = (column) => column < 2;
  return lines.map((line) =>
    line
      .map((cell, n) => (left(n) ? `${cell}`.padEnd(widths[n]) : `${cell}`.padStart(widths[n])))
      .join("  ")
      .trimEnd(),
  );
};

/** Aligned lines for a terminal: a row a program, a blank line between cases. */
export function textTable({ rows, cold_starts }) {
  const titles = "case,peer,ms,p10,p90,GFLOP/s,% of peak,GB/s,x heed,max error";
  const head = titles.split(",");
  const cells = rows.map((row) => {
    const own = rows.find((other) => other.case === row.case && other.peer === "heed");
    const error = row.max_error === undefined ? "" : row.max_error.toExponential(1);
    if (row.status !== "timed") {
      return [row.case, row.peer, row.status, "", "", "", "", "", "", error];
    }
    return [
      row.case,
      row.peer,
      ...[row.ms.median, row.ms.p10, row.ms.p90].map((ms) => ms.toPrecision(4)),
      row.gflops.toFixed(1),
      row.fraction_of_fma_peak ? (100 * row.fraction_of_fma_peak).toFixed(1) : "-",
      row.gbps.toFixed(1),
      own?.ms ? (row.ms.median / own.ms.median).toFixed(2) : "",
      error,
    ];
  });
  const lines = padded([head, ...cells]);
  const spaced = rows.flatMap((row, n) => {
    const first = n === 0 || rows[n - 1].case !== row.case;
    return first ? ["", lines[n + 1]] : [lines[n + 1]];
  });
  const reasons = rows
    .filter(({ reason }) => reason)
    .map((row) => `${row.status}: ${row.peer} on ${row.case}: ${row.reason}`);
  const starts = cold_starts.map(
    ({ place, threads, load_ms, first_call_ms }) =>
      `${place}, ${threads} thread(s): heed is loaded after ${load_ms.median.toFixed(1)} ms, ` +
      `its first call takes ${first_call_ms.median.toFixed(1)} ms`,
  );
  return [lines[0], ...spaced, "", ...starts, ...reasons].join("\n");
}

/** Rows that must not be: wrong numbers of anyone, and heed failing. */
export const badRows = ({ rows }) =>
  rows.filter(
    ({ status, peer }) => status === "wrong" || (status === "failed" && peer.startsWith("heed")),
  );
