// The committed results of heed-bench, without what no plot shows. A new file is on the page with the
// next build.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const RESULTS = fileURLToPath(new URL("../../native_bench/results/", import.meta.url));

const short = (value) => (typeof value === "number" ? Number(value.toPrecision(6)) : undefined);

/** What was measured on, and the ceilings that the same run found. */
function contextOf(file, { machine, build, probes, plan, date, command }) {
  const { chosen } = machine.simd;
  return {
    file,
    date: date.slice(0, 10),
    commit: build.commit,
    compiler: build.compiler,
    cpu: machine.cpu_model,
    gpu: machine.gpu?.name,
    simd: chosen,
    clock: plan.clock,
    command: command.replace(/^\S*heed-bench/, "heed-bench"),
    // On a GPU the targets are its instructions, each for one type.
    peaks: (probes?.fma ?? [])
      .filter(({ target }) => machine.gpu || target === chosen)
      .map(({ threads, gflops, dtype }) => ({ threads, gflops: short(gflops), dtype })),
    reads: (probes?.stream ?? []).map((row) => ({
      threads: row.threads,
      gbps: short(row.read_gbps),
    })),
  };
}

/** On a GPU rows of one mechanism have many shapes: each is called by its case, in words that wrap. */
const rowOf = ({ mechanism, peer, dtype, shape, threads, ms, device, ...row }) => ({
  name: device && row.case.replace(/\/cuda$/, "").replaceAll("/", " "),
  mechanism,
  peer,
  dtype,
  headDim: shape.head_dim,
  queries: shape.q_len,
  length: shape.kv_len,
  mask: shape.mask,
  threads,
  ms: short(ms.median),
  low: short(ms.p10),
  high: short(ms.p90),
  gflops: short(row.gflops),
  flop: row.flop,
  bytes: row.bytes,
  error: short(row.max_error),
  bound: short(row.error_bound),
});

const curveOf = ({ mechanism, mask, points }) => ({
  mechanism,
  mask,
  points: points.map(({ length, ms }) => [length, short(ms.median)]),
});

const timed = ({ rows }) => rows.filter(({ status }) => status === "timed");

/** The rows of each kind of call, as src/benchmarks/calls.ts describes them. */
const CALLS = {
  decode: (result) =>
    timed(result).map(({ num_heads, num_kv_heads, head_dim, dtype, length, gbps, ms }) => ({
      group: `${num_heads}:${num_kv_heads}, ${head_dim}`,
      name: dtype,
      x: length,
      y: short(gbps),
      ms: short(ms.median),
    })),
  backward: (result) =>
    timed(result).map(({ head_dim, mask, kv_len, gflops, ms, forward_ms }) => ({
      group: String(head_dim),
      name: mask,
      x: kv_len,
      y: short(gflops),
      ms: short(ms.median),
      forward: short(forward_ms.median),
    })),
  patterns: (result) => {
    const rows = timed(result).filter(({ group }) => group.startsWith("blocks"));
    const dense = (group) => rows.find((row) => row.group === group && row.visible === 1);
    return rows
      .sort((a, b) => a.visible - b.visible)
      .map(({ group, visible, ms }) => ({
        group,
        name: "block_sparse",
        x: short(100 * visible),
        y: short((100 * ms.median) / dense(group).ms.median),
        ms: short(ms.median),
      }));
  },
  steps: (result) =>
    timed(result).map(({ mechanism, head_dim, us, ms }) => ({
      group: String(head_dim),
      name: mechanism,
      x: 0,
      y: short(us),
      ms: short(ms.median),
    })),
};

/** Decoding on a GPU, cold: its keys are read once. What has no such time is not comparable. */
const deviceDecodeOf = (result) =>
  timed(result)
    .filter(({ mechanism, shape }) => mechanism === "scaled_dot_product" && shape.q_len === 1)
    .filter(({ cold_ms }) => cold_ms !== undefined)
    .map(({ peer, dtype, shape, bytes, cold_ms }) => ({
      group: `${dtype}, batch ${shape.batch}`,
      name: peer,
      x: shape.kv_len,
      y: short((1e-6 * bytes) / cold_ms.median),
      ms: short(cold_ms.median),
    }));

const isOne = (values) => new Set(values).size === 1;

/** Gradients of many mechanisms have a plot of their own: of one they are drawn against length. */
const hasManyMechanisms = ({ rows }) => !isOne(rows.map(({ mechanism }) => mechanism));
const isDrawn = ({ kind, result }) =>
  kind !== "backward" ||
  (!hasManyMechanisms(result) && !isOne(result.rows.map(({ kv_len }) => kv_len)));

const shapeOf = ({ head_dim, q_len, kv_len, num_heads, num_kv_heads, threads }) =>
  JSON.stringify({ head_dim, q_len, kv_len, num_heads, num_kv_heads, threads });

/** Of one shape: the page says it once for all rows. */
const gradientsOf = (file, result) => {
  const rows = timed(result);
  if (!isOne(rows.map(shapeOf))) {
    throw new Error(`${file}: gradients of many mechanisms must be of one shape and thread count`);
  }
  const [{ head_dim: headDim, kv_len: length, num_heads: heads, threads }] = rows;
  return {
    headDim,
    length,
    heads,
    threads,
    rows: rows.map(({ mechanism, mask, ms, forward_ms, gflops }) => ({
      mechanism,
      mask,
      ms: short(ms.median),
      forward: short(forward_ms.median),
      gflops: short(gflops),
    })),
  };
};

/**
 * @param {string} folder with "/" at its end
 * @returns {import("../src/benchmarks/results.js").Benchmarks} the newest first
 */
export function readBenchmarks(folder = RESULTS) {
  const results = readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .sort()
    .reverse()
    .map((file) => ({ file, result: JSON.parse(readFileSync(folder + file, "utf8")) }));
  const of = (schema) => results.filter(({ result }) => result.schema === schema);
  return {
    runs: of("heed-bench").map(({ file, result }) => ({
      ...contextOf(file, result),
      rows: result.rows.filter(({ status }) => status === "timed").map(rowOf),
    })),
    calls: [
      ...Object.entries(CALLS).flatMap(([kind, rowsOf]) =>
        of(`heed-bench-${kind}`)
          .filter(({ result }) => isDrawn({ kind, result }))
          .map(({ file, result }) => ({ ...contextOf(file, result), kind, rows: rowsOf(result) })),
      ),
      ...of("heed-bench")
        .filter(({ result }) => result.machine.gpu)
        .map(({ file, result }) => ({
          ...contextOf(file, result),
          kind: "decode",
          rows: deviceDecodeOf(result),
        }))
        .filter(({ rows }) => rows.length > 0),
    ],
    gradients: of("heed-bench-backward")
      .filter(({ result }) => hasManyMechanisms(result))
      .map(({ file, result }) => ({ ...contextOf(file, result), ...gradientsOf(file, result) })),
    curves: of("heed-bench-curves").map(({ file, result }) => ({
      ...contextOf(file, result),
      curves: result.curves.filter(({ points }) => points.length > 1).map(curveOf),
    })),
  };
}
