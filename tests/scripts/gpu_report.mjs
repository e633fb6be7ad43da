// A report as heed-bench --device cuda writes it, of a GPU that does not exist: its numbers are made up, and no
// page but those of tests shows them.

export const GPU = "A GPU of the tests";

const fma = [
  { target: "fma", threads: 1, gflops: 60_000, dtype: "float32" },
  { target: "mma.sync", threads: 1, gflops: 600_000, dtype: "bfloat16" },
  { target: "wgmma", threads: 1, gflops: 800_000, dtype: "bfloat16" },
];
const READ_GBPS = 3000;
/** Of the time that the peak of a type or the memory would allow. */
const SLOWER = { heed: 2, heed_hopper: 1.5, cudnn: 1.4, cublas: 6 };

const peakOf = (dtype) =>
  Math.max(...fma.filter((row) => row.dtype === dtype).map((row) => row.gflops));

function rowOf(peer, mechanism, dtype, shape) {
  const { batch, num_heads, num_kv_heads, q_len, kv_len, head_dim, mask } = shape;
  const size = dtype === "float32" ? 4 : 2;
  const flop = (4 * batch * num_heads * q_len * kv_len * head_dim) / (mask === "causal" ? 2 : 1);
  const bytes = 2 * size * batch * head_dim * (num_heads * q_len + num_kv_heads * kv_len);
  const least = 1e-6 * Math.max(flop / peakOf(dtype), bytes / READ_GBPS);
  const times = (median) => ({
    median,
    p10: 0.98 * median,
    p90: 1.03 * median,
    min: 0.97 * median,
  });
  const median = SLOWER[peer] * least;
  const heads = num_heads === num_kv_heads ? num_heads : `${num_heads}:${num_kv_heads}`;
  const length = q_len === kv_len ? q_len : `${q_len}x${kv_len}`;
  return {
    case: `${mechanism}/b${batch}/h${heads}/d${head_dim}/l${length}/${mask}/${dtype}/cuda`,
    mechanism,
    shape: { ...shape, head_dim_v: head_dim },
    dtype,
    peer,
    threads: 1,
    status: "timed",
    device: "cuda",
    max_error: dtype === "float32" ? 3e-7 : 2e-3,
    error_bound: dtype === "float32" ? 2e-6 : 8e-3,
    ms: times(median),
    cold_ms: times(1.1 * median),
    bytes,
    flop,
    gflops: (1e-6 * flop) / median,
  };
}

function prompts(dtype, peers) {
  const lengths = [512, 4096, 16384].flatMap((length) => [
    { batch: 16384 / length, q_len: length, kv_len: length },
  ]);
  const heads = { num_heads: 16, num_kv_heads: 16, head_dim: 128 };
  return ["full", "causal"].flatMap((mask) =>
    lengths.flatMap((shape) =>
      peers.map((peer) => rowOf(peer, "scaled_dot_product", dtype, { ...shape, ...heads, mask })),
    ),
  );
}

function decoding() {
  const shape = { num_heads: 32, num_kv_heads: 8, q_len: 1, head_dim: 128, mask: "full" };
  return [1, 32].flatMap((batch) =>
    [1024, 16384, 131072].flatMap((kv_len) =>
      ["heed", "cudnn"].map((peer) =>
        rowOf(peer, "scaled_dot_product", "bfloat16", { batch, kv_len, ...shape }),
      ),
    ),
  );
}

const recurrences = () =>
  [1024, 16384].map((length) =>
    rowOf("heed", "linear", "float32", {
      batch: 1,
      num_heads: 8,
      num_kv_heads: 8,
      q_len: length,
      kv_len: length,
      head_dim: 64,
      mask: "causal",
    }),
  );

export function gpuReport() {
  return {
    schema: "heed-bench",
    date: "2099-01-02T03:04:05Z",
    command: "build/heed-bench --device cuda",
    machine: {
      cpu_model: "A processor beside it",
      simd: { chosen: "AVX2", supported: ["AVX2"] },
      gpu: { name: GPU, compute_capability: "9.0" },
    },
    build: { compiler: "GNU 12", commit: "0123456789ab" },
    plan: { clock: "events" },
    probes: {
      fma,
      fma_after: fma,
      stream: [{ threads: 1, read_gbps: READ_GBPS, copy_gbps: 2700 }],
    },
    peers: Object.keys(SLOWER).map((id) => ({ id })),
    rows: [
      ...prompts("bfloat16", ["heed", "heed_hopper", "cudnn", "cublas"]),
      ...prompts("float32", ["heed", "cublas"]),
      ...decoding(),
      ...recurrences(),
    ],
  };
}
