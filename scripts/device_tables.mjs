// The tables of a report of heed-bench --device cuda: a line a problem, a column a program.

const milliseconds = (value) => value.toPrecision(3);

function problemOf({ mechanism, dtype, shape }) {
  const { num_heads: heads, num_kv_heads: kvHeads, q_len: queries, kv_len: keys } = shape;
  return [
    mechanism === "scaled_dot_product" ? "" : `\`${mechanism}\``,
    dtype,
    shape.batch,
    heads === kvHeads ? heads : `${heads}:${kvHeads}`,
    shape.head_dim,
    queries === keys ? keys : `${queries} x ${keys}`,
    shape.mask,
  ];
}

/** Warm milliseconds and TFLOP/s; of one query, cold microseconds and GB/s: its keys are read once. */
function cellOf(row) {
  if (row === undefined || row.status === "refused") return "-";
  if (row.status !== "timed") return row.status;
  if (row.shape.q_len > 1 || row.cold_ms === undefined) {
    return `${milliseconds(row.ms.median)}, ${(row.gflops / 1000).toFixed(1)}`;
  }
  const cold = row.cold_ms.median;
  return `${milliseconds(1000 * cold)}, ${((row.bytes / cold) * 1e-6).toFixed(0)}`;
}

function tableOf(rows, peers) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const head = ["", "type", "batch", "heads", "head_dim", "length", "mask", ...peers];
  const lines = [...new Set(rows.map((row) => row.case))].map((name) => {
    const own = rows.filter((row) => row.case === name);
    const cells = peers.map((peer) => cellOf(own.find((row) => row.peer === peer)));
    return line([...problemOf(own[0]), ...cells]);
  });
  return [line(head), `|${head.map(() => "---:").join("|")}|`, ...lines].join("\n");
}

/** Prompts and recurrences, then decoding, each if the report has any. */
export function deviceTables({ rows, peers }) {
  const ids = peers.map((peer) => peer.id);
  const kinds = [
    ["warm milliseconds a call, TFLOP/s", ({ shape }) => shape.q_len > 1],
    ["one query, cold microseconds a call, GB/s", ({ shape }) => shape.q_len === 1],
  ];
  return kinds
    .map(([title, belongs]) => [title, rows.filter(belongs)])
    .filter(([, own]) => own.length > 0)
    .map(([title, own]) => `**${title}**\n\n${tableOf(own, ids)}`)
    .join("\n\n");
}
