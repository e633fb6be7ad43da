// The speeds that heed aims at, and where the results of native_bench/results/ stand.

const percent = (value) => `${(100 * value).toFixed(1)} %`;
const times = (value) => `${value.toFixed(2)}x`;
const finerTimes = (value) => `${value.toFixed(3)}x`;
const gflops = (value) => `${value.toFixed(1)} GFLOP/s`;
const milliseconds = (value) => `${value.toFixed(1)} ms`;
const microseconds = (value) => `${value.toFixed(2)} us`;

const median = ({ ms }) => ms.median;
const within = (value, allowed) => allowed === undefined || allowed.includes(value);

/** The timed rows of a program that are as asked for. */
function rowsOf({ rows }, { peer = "heed", threads = 1, mask, lengths, headDims, heads, dtype }) {
  return rows.filter(
    (row) =>
      row.status === "timed" &&
      row.peer === peer &&
      row.threads === threads &&
      within(row.shape.mask, mask && [mask]) &&
      within(row.shape.q_len, lengths) &&
      within(row.shape.head_dim, headDims) &&
      within(row.shape.num_heads, heads) &&
      within(row.dtype, dtype && [dtype]),
  );
}

const ofPeak = (wanted) => (result) =>
  rowsOf(result, wanted).map((row) => row.fraction_of_fma_peak);

/** The case of a row without its storage type and threads. */
const caseOf = (row) => row.case.replace(/(\/b?float16)?\/t\d+$/, "");

/** `value(row, other)` for the rows of `wanted`, beside those of `others` with the same case. */
const beside = (wanted, others, value) => (result) =>
  rowsOf(result, wanted).map((row) => {
    const name = caseOf(row);
    const same = (other) => caseOf(other) === name;
    return value(row, rowsOf(result, others).find(same));
  });

/** How many times as fast as float32 a storage type is. */
const overFloats = (dtype, headDims) =>
  beside(
    { dtype, headDims, lengths: [512, 1024, 2048, 4096] },
    { dtype: "float32" },
    (row, floats) => median(floats) / median(row),
  );

const decode = (dtype) => (result) =>
  result.rows.find((row) => row.dtype === dtype && row.length === 32768);
const overFloatCache = (dtype) => (result) => [
  median(decode(dtype)(result)) / median(decode("float32")(result)),
];

const pattern = (name) => (result) =>
  result.rows.filter((row) => row.case.match(name)).map((row) => row.over_dense);

/** A row that PyTorch has no time for counts as missing. */
const overFlex = (name) => (result) =>
  result.rows
    .filter((row) => row.case.match(name))
    .map(({ ms, flex }) => (flex?.ms ? median(flex) / ms.median : Number.NaN));

/** Rows of `npm run bench:web`, and how many times as long the quickest of the others takes. */
const webRows = ({ rows }, { place, group = "forward", lengths, peer = "heed", threads = 1 }) =>
  rows.filter(
    (row) =>
      row.status === "timed" &&
      within(row.group, [group].flat()) &&
      row.threads === threads &&
      within(row.place, place && [place]) &&
      within(row.peer, [peer]) &&
      within(row.shape.kv_len, lengths),
  );
const webGflops = (wanted) => (result) => webRows(result, wanted).map((row) => row.gflops);
const webLead = (wanted, isPeer) => (result) =>
  webRows(result, wanted).map((row) => {
    const others = result.rows.filter(
      (other) =>
        other.status === "timed" &&
        other.case === row.case &&
        other.group === row.group &&
        isPeer.test(other.peer),
    );
    return Math.min(...others.map(median)) / median(row);
  });
const webScaling = (group, lengths) => (result) =>
  webRows(result, { group, lengths, threads: 2 }).map((row) => {
    const one = webRows(result, { group, lengths: [row.shape.kv_len] });
    return median(one[0]) / median(row);
  });
const cold = (place, threads) => (result) =>
  result.cold_starts
    .filter((start) => start.place === place && start.threads === threads)
    .map((start) => start.load_ms.median);

/** Microseconds of a call of one token that do not grow with its heads, by those of 1 and of 8. */
const perCall = (result) => {
  const [one, eight] = [1, 8].map((heads) => rowsOf(result, { lengths: [1], heads: [heads] })[0]);
  return [1e3 * (median(one) - (median(eight) - median(one)) / 7)];
};

const ofMechanisms = (ids) => (result) =>
  rowsOf(result, {})
    .filter((row) => ids.includes(row.mechanism))
    .map((row) => row.fraction_of_fma_peak);
const layerSpeeds = (result) =>
  rowsOf(result, { mask: "full" })
    .filter((row) => row.mechanism === "multi_head")
    .map((row) => row.gflops);
/** Thousand millions of tanh a second: one for each pair and hidden number. */
const tanhs = (result) =>
  rowsOf(result, { mask: "full" })
    .filter((row) => row.mechanism === "additive")
    .map(({ shape, ms }) => {
      const { num_heads: heads, q_len: queries, kv_len: keys, head_dim: hidden } = shape;
      return (heads * queries * keys * hidden) / ms.median / 1e6;
    });

const from1024 = [1024, 2048, 4096, 8192];
const from2048 = [2048, 4096, 8192];
const zen4 = (what) => `*_epyc-zen4_*_${what}.json`;
const beside64 = zen4("peers_wall");
const types = zen4("types_cpu-time");
const headDims = zen4("head-dims_cpu-time");
const short = zen4("short_cpu-time");
const calls = zen4("calls_cpu-time");
const decoding = zen4("decode_cpu-time");
const everything = zen4("mechanisms_cpu-time");
const layers = zen4("layers_wall");
const recurrent = zen4("recurrent_cpu-time");
const web = zen4("web-node_wall");
const webThreads = zen4("web-node-threads_wall");
const chromium = zen4("web-chromium_wall");

const threads = zen4("threads_wall");

/** What two threads gain over one, of what the multiply-add probe gains in the same run. */
const scaling = (wanted) =>
  beside(
    { ...wanted, threads: 2 },
    wanted,
    (both, one) => both.fraction_of_fma_peak / one.fraction_of_fma_peak,
  );

/** Projections of 64 rows and more: the speed of heed over that of OpenBLAS. */
const overBlas = ({ rows }) =>
  rows
    .filter(
      (row) => row.peer === "heed" && row.threads === 1 && row.function === "linear" && row.m >= 64,
    )
    .map((row) => {
      const blas = rows.find((other) => other.case === row.case && other.peer === "blas");
      return blas.ms.median / row.ms.median;
    });

const decays = ["retention", "lightning", "mamba2"];
const deltas = ["gated_linear", "hgrn2", "rwkv6", "rwkv7", "delta_rule", "gated_delta_rule"];
const others = /^(onnxruntime|tensorflow)/;

/**
 * What is to be reached: at least, or at most, a number; of which result; how it follows from it; and
 * where the page says what was tried when it is not reached.
 */
export const targets = [
  {
    work: "float32, head_dim 64, length 1024 and more",
    least: 0.88,
    unit: percent,
    file: beside64,
    values: ofPeak({ mask: "full", headDims: [64], lengths: from1024 }),
    why: "the-limit-of-a-head-of-64",
  },
  {
    work: "the same, head_dim 128",
    least: 0.9,
    unit: percent,
    file: types,
    values: ofPeak({ dtype: "float32", mask: "full", headDims: [128], lengths: from1024 }),
    why: "the-limit-of-a-head-of-64",
  },
  {
    work: "the same, head_dim 80, 96, 256",
    least: 0.85,
    unit: percent,
    file: headDims,
    values: ofPeak({ mask: "full", headDims: [80, 96, 256], lengths: from1024 }),
    why: "the-limit-of-a-head-of-64",
  },
  {
    work: "causal, head_dim 64, length 2048 and more",
    least: 0.82,
    unit: percent,
    file: beside64,
    values: ofPeak({ mask: "causal", headDims: [64], lengths: from2048 }),
  },
  {
    work: "causal, head_dim 64, length 512",
    least: 0.65,
    unit: percent,
    file: beside64,
    values: ofPeak({ mask: "causal", headDims: [64], lengths: [512] }),
  },
  {
    work: "length 128, 8 heads of 64",
    least: 0.8,
    unit: percent,
    file: beside64,
    values: ofPeak({ mask: "full", headDims: [64], lengths: [128] }),
    why: "short-sequences",
  },
  {
    work: "length 16, time over that of plain loops",
    most: 1,
    unit: times,
    file: short,
    values: beside(
      { mask: "full", lengths: [16] },
      { peer: "plain_loops" },
      (row, loops) => median(row) / median(loops),
    ),
  },
  {
    work: "length 1, a call by `heed::Run`, beside what each head takes",
    most: 2,
    unit: microseconds,
    file: calls,
    values: perCall,
  },
  {
    work: "two threads over one, of what the multiply-add probe gains, 8 heads, length 2048 and more",
    least: 0.95,
    unit: percent,
    file: threads,
    values: scaling({ heads: [8], lengths: from2048 }),
    why: "two-threads",
  },
  {
    work: "the same, one head, length 4096",
    least: 0.95,
    unit: percent,
    file: threads,
    values: scaling({ heads: [1], lengths: [4096] }),
    why: "two-threads",
  },
  {
    work: "the same, 8 heads, length 512",
    least: 0.95,
    unit: percent,
    file: threads,
    values: scaling({ heads: [8], lengths: [512] }),
    why: "two-threads",
  },
  {
    work: "bfloat16 over float32, head_dim 64, length 512 and more",
    least: 1.6,
    unit: times,
    file: types,
    values: overFloats("bfloat16", [64]),
  },
  {
    work: "the same, head_dim 128",
    least: 1.7,
    unit: times,
    file: types,
    values: overFloats("bfloat16", [128]),
    why: "bfloat16-beside-a-faster-float32",
  },
  {
    work: "float16 over float32",
    least: 0.95,
    unit: times,
    file: types,
    values: overFloats("float16", [64, 128]),
  },
  {
    work: "decoding, 32 and 8 heads of 128, 32768 tokens: of the read rate",
    least: 0.85,
    unit: percent,
    file: decoding,
    values: (result) => [decode("float32")(result).fraction_of_read],
    why: "decoding-below-four-bytes",
  },
  {
    work: "the same in bfloat16, time over that in float32",
    most: 0.6,
    unit: times,
    file: decoding,
    values: overFloatCache("bfloat16"),
    why: "decoding-below-four-bytes",
  },
  {
    work: "the same in int8",
    most: 0.45,
    unit: times,
    file: decoding,
    values: overFloatCache("int8"),
    why: "decoding-below-four-bytes",
  },
  {
    work: "causal window of 1024 keys, 65536 tokens, over dense",
    most: 1.2,
    unit: times,
    file: zen4("patterns_cpu-time"),
    values: pattern(/^window1024\/causal\/l65536/),
  },
  {
    work: "causal window of 256 keys, 4096 and 8192 tokens, over dense",
    most: 1.35,
    unit: finerTimes,
    file: zen4("patterns_cpu-time"),
    values: pattern(/^window\/causal\/l(4096|8192)$/),
    why: "windows-of-256-keys",
  },
  {
    work: "10 % of the blocks of 128, over dense",
    most: 1.2,
    unit: finerTimes,
    file: zen4("patterns_cpu-time"),
    values: pattern(/^block_sparse\/128\/10%/),
    why: "a-tenth-of-the-blocks",
  },
  {
    work: "causal windows of 256 and 1024 keys, times as fast as PyTorch's flex attention",
    least: 2,
    unit: times,
    file: zen4("patterns_cpu-time"),
    values: overFlex(/^window(1024)?\/causal/),
    why: "flex-attention",
  },
  {
    work: "10 % of the blocks of 128, the same",
    least: 2,
    unit: times,
    file: zen4("patterns_cpu-time"),
    values: overFlex(/^block_sparse\/128\/10%/),
    why: "flex-attention",
  },
  {
    work: "additive scores, thousand millions of tanh a second",
    least: 2,
    unit: (value) => value.toFixed(2),
    file: everything,
    values: tanhs,
  },
  {
    work: "`multi_head`, 512 wide, 8 heads, lengths 512, 1024, 2048",
    least: 90,
    unit: gflops,
    file: layers,
    values: layerSpeeds,
  },
  {
    work: "projections of 64 and more rows, times as fast as OpenBLAS",
    least: 0.9,
    unit: times,
    file: zen4("products_wall"),
    values: overBlas,
  },
  {
    work: "AVX2 alone, length 1024 and more",
    least: 0.85,
    unit: percent,
    file: zen4("avx2_cpu-time"),
    values: ofPeak({ mask: "full", lengths: from1024 }),
    why: "avx2-alone",
  },
  {
    work: "linear, and decays that are one number a token",
    least: 0.5,
    unit: percent,
    file: recurrent,
    values: ofMechanisms(["linear", ...decays]),
  },
  {
    work: "decays for each channel, and delta rules",
    least: 0.25,
    unit: percent,
    file: recurrent,
    values: ofMechanisms([...deltas, "kimi_delta"]),
  },
  {
    work: "WebAssembly, relaxed SIMD, Node, length 512 and more",
    least: 45,
    unit: gflops,
    file: web,
    values: webGflops({ lengths: [512, 1024, 2048] }),
    why: "webassembly-limits",
  },
  {
    work: "the same, Chromium",
    least: 45,
    unit: gflops,
    file: chromium,
    values: webGflops({ lengths: [512, 1024, 2048] }),
    why: "webassembly-limits",
  },
  {
    work: "WebAssembly, plain SIMD, Node, length 512 and more",
    least: 36,
    unit: gflops,
    file: web,
    values: webGflops({ lengths: [512, 1024, 2048], peer: "heed_plain" }),
  },
  {
    work: "WebAssembly, times as fast as onnxruntime-web, length 512 and more",
    least: 2,
    unit: times,
    file: web,
    values: webLead({ lengths: [512, 1024, 2048] }, /^onnxruntime/),
    why: "webassembly-limits",
  },
  {
    work: "the same, causal",
    least: 3.5,
    unit: times,
    file: web,
    values: webLead({ group: "causal", lengths: [512, 1024, 2048] }, /^onnxruntime/),
  },
  {
    work: "WebAssembly, two threads over one, length 1024 and more",
    least: 1.8,
    unit: times,
    file: webThreads,
    values: (result) => ["forward", "causal"].flatMap((g) => webScaling(g, from1024)(result)),
  },
  {
    work: "WebAssembly, 16 and 128 tokens, times as fast as the best other package",
    least: 1,
    unit: times,
    file: web,
    values: webLead({ group: ["short", "forward", "causal"], lengths: [16, 128] }, others),
    why: "webassembly-limits",
  },
  {
    work: "WebAssembly, decoding, the same",
    least: 1,
    unit: times,
    file: web,
    values: webLead({ group: "decode" }, others),
    why: "webassembly-limits",
  },
  {
    work: "`import` and `load()` in a new Node process, one thread",
    most: 30,
    unit: milliseconds,
    file: web,
    values: cold("node", 1),
    why: "cold-load",
  },
  {
    work: "the same, a new page in Chromium, no bundler",
    most: 30,
    unit: milliseconds,
    file: chromium,
    values: cold("chromium", 1),
    why: "cold-load",
  },
  {
    work: "in Node, two threads",
    most: 120,
    unit: milliseconds,
    file: webThreads,
    values: cold("node", 2),
  },
];

/** The range of the values, and whether the worst of them is what was wanted. */
export function standing({ least, most, unit }, values) {
  if (values.length === 0 || values.some((value) => !Number.isFinite(value))) {
    throw new Error("a result lacks a row that a target is about");
  }
  const [low, high] = [Math.min(...values), Math.max(...values)].map(unit);
  const reached = values.every(
    (value) => value >= (least ?? -Infinity) && value <= (most ?? Infinity),
  );
  return { range: low === high ? low : `${low} to ${high}`, reached };
}

/** One line a target. `read(name)` gives {file, result} of the newest file that a name fits. */
export function targetTable(read) {
  const lines = targets.map((target) => {
    const { file, result } = read(target.file);
    const { range, reached } = standing(target, target.values(result));
    const aim = `${target.least === undefined ? "at most" : "at least"} ${target.unit(target.least ?? target.most)}`;
    const missed = target.why ? `[missed](performance_notes.md#${target.why})` : "missed";
    const raw = `[raw](../native_bench/results/${file})`;
    return [target.work, aim, range, reached ? "reached" : missed, raw];
  });
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const head = [line(["work", "aim", "measured", "", ""]), "|---|---|---|---|---|"];
  return [...head, ...lines.map(line)].join("\n");
}
