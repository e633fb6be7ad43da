// Writes the tables and pictures of docs/performance.md, and the summary of the README, between their markers
// from the raw results that the pages name, or checks them (the default). A name with `*` is the newest file that it fits.
// Usage: node scripts/performance_table.mjs [--write]
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { curvePlot } from "./curve_plot.mjs";
import { deviceTables } from "./device_tables.mjs";
import { summary } from "./performance_summary.mjs";
import { targetTable } from "./performance_targets.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const page = join(root, "docs/performance.md");
const readme = join(root, "README.md");
const marker = /<!-- results: (\S+) threads=(\d+)(?: groups=(\S+))? -->\n[\s\S]*?<!-- end -->/g;
const targetMarker = /<!-- targets -->\n[\s\S]*?<!-- end -->/g;

const percent = (value) => `${(100 * value).toFixed(0)} %`;
const ratio = (value) => `${value.toFixed(2)}x`;

const milliseconds = ({ ms }) => ms.median.toPrecision(3);
const error = (row) => row.max_error.toExponential(0);

function markdown(head, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [line(head), `|${head.map(() => "---:").join("|")}|`, ...rows.map(line)].join("\n");
}

/** One line a case: heed's time, speed and fraction of the measured peak, and how much longer peers take. */
function caseTable({ rows, peers }, threads) {
  const timed = rows.filter((row) => row.status === "timed" && row.threads === threads);
  const others = peers.map((peer) => peer.id).filter((id) => id !== "heed");
  const lines = timed
    .filter((row) => row.peer === "heed")
    .map((row) => {
      const times = others.map((id) => {
        const peer = timed.find((other) => other.peer === id && other.case === row.case);
        return peer ? ratio(peer.ms.median / row.ms.median) : "";
      });
      const { shape } = row;
      return [
        shape.head_dim,
        shape.q_len,
        shape.mask,
        milliseconds(row),
        row.gflops.toFixed(1),
        percent(row.fraction_of_fma_peak),
        error(row),
        ...times,
      ];
    });
  const head = ["head_dim", "length", "mask", "ms", "GFLOP/s", "of peak", "max error", ...others];
  return markdown(head, lines);
}

/** One line a mechanism: full and causal side by side. */
function mechanismTable({ rows }) {
  const timed = rows.filter((row) => row.status === "timed" && row.peer === "heed");
  const cells = (row) => (row ? [milliseconds(row), row.gflops?.toFixed(1) ?? "-"] : ["", ""]);
  const lines = [...new Set(timed.map((row) => row.mechanism))].map((id) => {
    const of = (mask) => timed.find((row) => row.mechanism === id && row.shape.mask === mask);
    const [full, causal] = [of("full"), of("causal")];
    const scratch = full.scratch_bytes === undefined ? "-" : (full.scratch_bytes / 1024).toFixed(0);
    return [
      `\`${id}\``,
      ...cells(full),
      ...cells(causal),
      full.gbps.toFixed(1),
      scratch,
      error(full),
    ];
  });
  const head = [
    "mechanism",
    "ms",
    "GFLOP/s",
    "causal ms",
    "GFLOP/s",
    "GB/s",
    "scratch KiB",
    "max error",
  ];
  return markdown(head, lines);
}

/** The row of a cell of a table: there must be one and no second. */
function cellOf(rows, cell, fits) {
  const found = rows.filter(fits);
  if (found.length === 1) return found[0];
  throw new Error(`${found.length} results for the cell ${cell} of a table, which shows one`);
}

/** heed's own rows on some threads. */
const ownRows = ({ rows }, threads) =>
  rows.filter((row) => row.status === "timed" && row.peer === "heed" && row.threads === threads);

/** One line a case: GFLOP/s of each storage type, float32 of the peak too, and what bfloat16 gains. */
function typeTable(result, threads) {
  const timed = ownRows(result, threads);
  const dtypes = [...new Set(["float32", "bfloat16", ...timed.map((row) => row.dtype)])];
  const shown = ["head_dim", "q_len", "mask"];
  const lines = timed
    .filter((row) => row.dtype === "float32")
    .map(({ shape }) => {
      const same = (row) => shown.every((key) => row.shape[key] === shape[key]);
      const name = shown.map((key) => shape[key]).join(" ");
      const of = (dtype) =>
        cellOf(timed, `${dtype} ${name}`, (row) => row.dtype === dtype && same(row));
      const speeds = dtypes.map((dtype) => of(dtype).gflops.toFixed(0));
      const gain = of("float32").ms.median / of("bfloat16").ms.median;
      const peak = percent(of("float32").fraction_of_fma_peak);
      return [shape.head_dim, shape.q_len, shape.mask, ...speeds, peak, ratio(gain)];
    });
  const head = ["head_dim", "length", "mask", ...dtypes, "float32 of peak", "bfloat16 is faster"];
  return markdown(head, lines);
}

/** One line a mechanism, length and mask: GFLOP/s, and the part of the peak, for every head size. */
function headDimTable(result, threads) {
  const timed = ownRows(result, threads);
  const sizes = [...new Set(timed.map((row) => row.shape.head_dim))];
  const lineOf = ({ mechanism, shape }) => [`\`${mechanism}\``, shape.q_len, shape.mask];
  const lines = new Map(timed.map((row) => [lineOf(row).join(" "), lineOf(row)]));
  const full = [...lines].map(([name, line]) => {
    const cells = sizes.map((size) => {
      const cell = cellOf(
        timed,
        `${name} ${size}`,
        (row) => lineOf(row).join(" ") === name && row.shape.head_dim === size,
      );
      return `${cell.gflops.toFixed(0)}, ${percent(cell.fraction_of_fma_peak)}`;
    });
    return [...line, ...cells];
  });
  const head = ["mechanism", "length", "mask", ...sizes.map((size) => `head_dim ${size}`)];
  return markdown(head, full);
}

function patternTable({ rows, growths, flex }) {
  const overFlex = (row) => (row.flex.ms ? ratio(row.flex.ms.median / row.ms.median) : "");
  const lines = rows.map((row) => [
    row.case,
    `${(100 * row.visible).toFixed(2)} %`,
    milliseconds(row),
    (row.flop / row.ms.median / 1e6).toFixed(1),
    ratio(row.over_dense),
    error(row),
    ...(flex ? [overFlex(row)] : []),
  ]);
  const head = ["rule", "visible", "ms", "GFLOP/s", "over dense", "max error"];
  if (flex) head.push("flex");
  const growth = growths.map((g) => `${g.group}: time ~ length^${g.exponent.toFixed(2)}`);
  const below = growth.length === 0 ? [] : ["", `${growth.join("; ")}.`];
  return [markdown(head, lines), ...below].join("\n");
}

function decodeTable({ rows }) {
  const lines = rows.map((row) => [
    row.dtype,
    row.length,
    milliseconds(row),
    row.gbps.toFixed(1),
    percent(row.fraction_of_read),
    error(row),
  ]);
  return markdown(["cache", "tokens", "ms", "GB/s", "of read rate", "max error"], lines);
}

/** heed beside the BLAS: milliseconds, GFLOP/s, and how many times as long the BLAS takes. */
function productTable({ rows }, threads) {
  const own = rows.filter((row) => row.peer === "heed" && row.threads === threads);
  const lines = own.map((row) => {
    const blas = rows.find((other) => other.case === row.case && other.peer === "blas");
    return [
      `\`${row.function}\``,
      `${row.batch > 1 ? `${row.batch} of ` : ""}${row.m} x ${row.k} x ${row.n}`,
      milliseconds(row),
      row.gflops.toFixed(1),
      percent(row.fraction_of_fma_peak),
      blas ? `${(blas.ms.median / row.ms.median).toFixed(2)}x` : "-",
    ];
  });
  const head = ["product", "m x k x n", "ms", "GFLOP/s", "of peak", "OpenBLAS takes"];
  return markdown(head, lines);
}

const thousands = (tokens) => `${tokens / 1024}k`;

/** One line a mechanism: microseconds a token at some lengths, and how they grow. */
function curveTable({ curves }) {
  const shown = [1024, 4096, 16384, 131072];
  const lines = curves.map((curve) => {
    const cells = shown.map((length) => {
      const point = curve.points.find((other) => other.length === length);
      return point ? ((1000 * point.ms.median) / length).toPrecision(3) : "-";
    });
    const scratch = curve.points.at(-1)?.scratch_bytes;
    return [
      `\`${curve.mechanism}\``,
      curve.mask,
      ...cells,
      curve.exponent === undefined ? "-" : `length^${curve.exponent.toFixed(2)}`,
      curve.over_linear === undefined ? "-" : ratio(curve.over_linear),
      scratch === undefined ? "-" : (scratch / 1024).toFixed(0),
      curve.scratch_growth ? ratio(curve.scratch_growth) : "-",
    ];
  });
  const head = [
    "mechanism",
    "mask",
    ...shown.map((length) => `us/token at ${thousands(length)}`),
    "time from 4k on",
    "slowest token / at 4k",
    "scratch KiB",
    "growth from 4k",
  ];
  return markdown(head, lines);
}

/** One line a mechanism and mask. */
function approximationTable({ rows }) {
  const distance = (value) => value.toPrecision(2);
  const lines = rows.map(({ mechanism, mask, length, error: by, over_exact }) => [
    `\`${mechanism}\``,
    length,
    mask,
    distance(by.random),
    distance(by.topics),
    distance(by.needle),
    over_exact === undefined ? "-" : ratio(over_exact),
  ]);
  const head = ["mechanism", "length", "mask", "random", "topics", "needle", "time / exact"];
  return markdown(head, lines);
}

/** One line a mechanism: a token for every head size. */
function stepTable({ rows }) {
  const sizes = [...new Set(rows.map((row) => row.head_dim))];
  const lines = [...new Set(rows.map((row) => row.mechanism))].map((id) => {
    const of = (size) => rows.find((row) => row.mechanism === id && row.head_dim === size);
    const cells = sizes.flatMap((size) => [
      of(size).us.toPrecision(3),
      (of(size).state_bytes / 1024).toFixed(0),
    ]);
    return [`\`${id}\``, ...cells, error(of(sizes[0]))];
  });
  const columns = sizes.flatMap((size) => [`us, head_dim ${size}`, "state KiB"]);
  return markdown(["mechanism", ...columns, "max error"], lines);
}

/** One line a mechanism: backward, and how many times as long as forward it takes. */
function backwardMechanismTable({ rows }) {
  const timed = rows.filter((row) => row.status === "timed");
  const cells = (row) => (row ? [milliseconds(row), ratio(overForward(row))] : ["", ""]);
  const lines = [...new Set(timed.map((row) => row.mechanism))].map((id) => {
    const of = (mask) => timed.find((row) => row.mechanism === id && row.mask === mask);
    const full = of("full") ?? of("causal");
    return [
      `\`${id}\``,
      ...cells(of("full")),
      ...cells(of("causal")),
      full.gflops?.toFixed(1) ?? "-",
      full.peak_bytes === undefined ? "-" : (full.peak_bytes / 1024).toFixed(0),
      error(full),
    ];
  });
  const head = [
    "mechanism",
    "ms",
    "over forward",
    "causal ms",
    "over forward",
    "GFLOP/s",
    "memory KiB",
    "max error",
  ];
  return markdown(head, lines);
}

const overForward = ({ ms, forward_ms }) => ms.median / forward_ms.median;

function backwardTable({ rows }, threads) {
  if (new Set(rows.map((row) => row.mechanism)).size > 1) return backwardMechanismTable({ rows });
  if (threads > 1) return scalingTable({ rows }, threads);

  const lines = rows
    .filter((row) => row.threads === threads)
    .map((row) => [
      row.q_len,
      row.mask,
      row.ms.median.toPrecision(3),
      row.gflops.toFixed(1),
      percent(row.fraction_of_peak),
      ratio(overForward(row)),
      error(row),
    ]);
  const columns = ["length", "mask", "ms", "GFLOP/s", "of peak", "over forward", "max error"];
  return markdown(columns, lines);
}

/** One line for every case of one thread: how much faster the same case is on `threads` of them. */
function scalingTable({ rows }, threads) {
  const lines = rows
    .filter((row) => row.threads === 1)
    .map((row) => {
      const name = row.case.replace(/1$/, threads);
      const shared = rows.find((other) => other.case === name);
      const times = row.ms.median / shared.ms.median;
      const cells = [row, shared].flatMap((r) => [r.ms.median.toPrecision(3), r.gflops.toFixed(1)]);
      return [row.num_heads, row.q_len, row.mask, ...cells, ratio(times)];
    });
  const columns = ["heads", "length", "mask", "ms, 1 thread", "GFLOP/s"];
  return markdown([...columns, `ms, ${threads} threads`, "GFLOP/s", "faster"], lines);
}

/** One table for every place and group of `npm run bench:web`: a line a program, a column a length. */
function webTables({ rows }, threads) {
  const chosen = rows.filter((row) => row.threads === threads);
  const kinds = new Map(chosen.map((row) => [`${row.place}, ${row.group}`, row]));
  const tables = [...kinds].map(([title, { place, group }]) => {
    const own = chosen.filter((row) => row.place === place && row.group === group);
    const rate = group === "decode" ? "GB/s" : "GFLOP/s";
    return `**${title}** (milliseconds a call, ${rate})\n\n${webTable(own)}`;
  });
  return tables.join("\n\n");
}

/** Milliseconds and GFLOP/s; of decoding, which reads more than it computes, GB/s. */
function webCell(row) {
  if (row === undefined || row.status === "refused") return "-";
  if (row.status !== "timed") return row.status;
  const decodes = row.shape.q_len < row.shape.kv_len;
  return `${milliseconds(row)}, ${(decodes ? row.gbps : row.gflops).toFixed(1)}`;
}

function webTable(rows) {
  const column = ({ shape, resident }) => `${shape.kv_len}${resident ? ", keys kept" : ""}`;
  const columns = [...new Set(rows.map(column))];
  const lines = [...new Set(rows.map((row) => row.peer))].map((peer) => {
    const cells = columns.map((name) =>
      webCell(rows.find((row) => row.peer === peer && column(row) === name)),
    );
    return [`\`${peer}\``, ...cells];
  });
  const useful = lines.filter(([, ...cells]) => cells.some((cell) => cell !== "-"));
  return markdown(["program", ...columns], useful);
}

/** What a result file is a table of. */
export function tableOf(result, threads) {
  if (result.schema === "heed-bench-web") return webTables(result, threads);
  if (result.schema === "heed-bench-patterns") return patternTable(result);
  if (result.schema === "heed-bench-decode") return decodeTable(result);
  if (result.schema === "heed-bench-products") return productTable(result, threads);
  if (result.schema === "heed-bench-curves") return curveTable(result);
  if (result.schema === "heed-bench-approximation") return approximationTable(result);
  if (result.schema === "heed-bench-steps") return stepTable(result);
  if (result.schema === "heed-bench-backward") return backwardTable(result, threads);
  if (result.machine?.gpu) return deviceTables(result);
  const several = (value) => new Set(result.rows.map(value)).size > 1;
  if (several((row) => row.mechanism)) {
    if (several((row) => row.shape.head_dim)) return headDimTable(result, threads);
    return mechanismTable(result);
  }
  return several((row) => row.dtype) ? typeTable(result, threads) : caseTable(result, threads);
}

function peaks({ probes, machine }, threads) {
  if (probes === undefined) return "";
  if (machine.gpu) {
    const best = probes.fma.map((p) => `${p.target} ${(p.gflops / 1000).toFixed(0)} ${p.dtype}`);
    const copies = probes.stream.map((rate) => `copy ${rate.copy_gbps.toFixed(0)} GB/s`);
    return `, measured TFLOP/s: ${best.join(", ")}; ${copies.join(", ")}`;
  }
  const fma = probes.fma.find((p) => p.threads === threads && p.target === machine.simd.chosen);
  const stream = probes.stream.find((rate) => rate.threads === threads);
  const texts = [
    fma && `, measured FMA peak ${fma.gflops.toFixed(1)} GFLOP/s`,
    !fma && stream && `, measured read rate ${stream.read_gbps.toFixed(1)} GB/s`,
  ];
  return texts.filter(Boolean).join("");
}

const results = join(root, "native_bench/results");
const readJson = (file) => JSON.parse(readFileSync(join(results, file), "utf8"));

/** The file of a name; of a pattern, the one that was measured last. */
function fileOf(name) {
  if (!name.includes("*")) return name;
  const pattern = new RegExp(`^${name.replaceAll(".", "\\.").replaceAll("*", ".*")}$`);
  const fitting = readdirSync(results).filter((file) => pattern.test(file));
  if (fitting.length === 0) throw new Error(`no file of native_bench/results fits ${name}`);
  const dates = new Map(fitting.map((file) => [file, readJson(file).date]));
  return fitting.reduce((last, other) => (dates.get(other) > dates.get(last) ? other : last));
}

const readResult = (name) => readJson(fileOf(name));

function readNamed(name) {
  const file = fileOf(name);
  return { file, result: readJson(file) };
}

/** The result; only the groups of rows that match, when a page asks for some. */
function chosenResult(file, groups) {
  const result = readResult(file);
  if (groups === undefined) return result;
  const matches = ({ group }) => new RegExp(groups).test(group);
  const { rows, growths } = result;
  return { ...result, rows: rows.filter(matches), growths: growths?.filter(matches) };
}

function table(file, threads, groups) {
  const result = chosenResult(file, groups);
  const { machine, build, command, date } = result;
  const { gpu } = machine;
  const where = gpu
    ? `${gpu.name}, driver ${gpu.driver}, CUDA ${gpu.cuda_runtime}`
    : `${machine.cpu_model}, ${machine.simd.chosen}, ${threads} thread${threads > 1 ? "s" : ""}`;
  return [
    where +
      `${peaks(result, threads)}; ${build.compiler}, commit ${build.commit}, ${date.slice(0, 10)}.`,
    "",
    `\`${command.replace(/^\S*heed-bench/, "heed-bench")}\``,
    "",
    tableOf(result, threads),
  ].join("\n");
}

const renderSummary = (text) =>
  text.replace(
    /<!-- summary: (\S+) -->\n[\s\S]*?<!-- end -->/g,
    (_, file) => `<!-- summary: ${file} -->\n${summary(readResult(file))}\n<!-- end -->`,
  );

const render = (text) =>
  text
    .replace(
      marker,
      (whole, file, threads, groups) =>
        `${whole.split("\n")[0]}\n${table(file, Number(threads), groups)}\n<!-- end -->`,
    )
    .replace(targetMarker, () => `<!-- targets -->\n${targetTable(readNamed)}\n<!-- end -->`);

/** The pictures that the page shows, by path: drawn from the results that its comments name. */
function pictures(text) {
  const picture = /<!-- plot: (\S+) highlights=(\S+) -->\s*!\[[^\]]*\]\((\S+)\)/g;
  return [...text.matchAll(picture)].map(([, file, highlights, path]) => ({
    path: join(dirname(page), path),
    svg: curvePlot(readResult(file), highlights.split(",")),
  }));
}

const readIfThere = (path) => (existsSync(path) ? readFileSync(path, "utf8") : undefined);

export const isUpToDate = () => {
  const text = readFileSync(page, "utf8");
  const front = readFileSync(readme, "utf8");
  return (
    render(text) === text &&
    renderSummary(front) === front &&
    pictures(text).every(({ path, svg }) => readIfThere(path) === svg)
  );
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = readFileSync(page, "utf8");
  if (process.argv.includes("--write")) {
    writeFileSync(page, render(text));
    writeFileSync(readme, renderSummary(readFileSync(readme, "utf8")));
    for (const { path, svg } of pictures(text)) writeFileSync(path, svg);
  } else if (!isUpToDate()) {
    console.error(
      "docs/performance.md or README.md is out of date: node scripts/performance_table.mjs --write",
    );
    process.exit(1);
  }
}
