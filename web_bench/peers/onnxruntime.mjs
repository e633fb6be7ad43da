// onnxruntime in its two forms: onnxruntime-web (WebAssembly) and onnxruntime-node (native, Node only).
// Attention is asked for in the four ways that its users have.
import { swapHeads } from "../problem.mjs";

const OPSET = 23;
const float32 = (...names) => names.map((name) => ({ name, type: "float32" }));
const node = (op, inputs, outputs, attributes = {}, domain = "") => ({
  op,
  domain,
  inputs: inputs.map((input) => (typeof input === "string" ? float32(input)[0] : input)),
  outputs,
  attributes,
});

/** [batch, len, heads * dim], as the operators of com.microsoft want it. */
function packed({ data, shape: [batch, heads, len, dim] }) {
  return {
    data: swapHeads(data, [batch, heads, len, dim]),
    shape: [batch, len, heads * dim],
  };
}
const unpacked = (data, { batch, q_len, num_heads, head_dim_v }) =>
  swapHeads(data, [batch, q_len, num_heads, head_dim_v]);

const same = (tensor) => tensor;
const sameOutput = (data) => data;

const multiHead = {
  layout: packed,
  read: unpacked,
  nodes: ({ shape, causal }) => [
    node(
      "MultiHeadAttention",
      ["q", "k", "v"],
      ["output"],
      { num_heads: shape.num_heads, unidirectional: causal ? 1 : 0 },
      "com.microsoft",
    ),
  ],
};

const attention = {
  layout: same,
  read: sameOutput,
  nodes: ({ causal }) => [
    node("Attention", ["q", "k", "v"], ["output"], { is_causal: causal ? 1 : 0 }),
  ],
};

/** What exporters write: two matrix products, a mask that is added, a softmax. */
const products = {
  layout: same,
  read: sameOutput,
  nodes: ({ causal }) => {
    const masked = causal ? [node("Add", ["scaled", "mask"], ["scores"])] : [];
    return [
      node("Transpose", ["k"], ["transposed"], { perm: [0, 1, 3, 2] }),
      node("MatMul", ["q", "transposed"], ["products"]),
      node("Mul", ["products", "scale"], ["scaled"]),
      ...masked,
      node("Softmax", [causal ? "scores" : "scaled"], ["weights"], { axis: -1 }),
      node("MatMul", ["weights", "v"], ["output"]),
    ];
  },
  constants: ({ shape, causal }) => {
    const { q_len, kv_len } = shape;
    const scale = Float32Array.of(1 / Math.sqrt(shape.head_dim));
    const constants = [{ name: "scale", data: scale, shape: [] }];
    if (!causal) return constants;
    const data = new Float32Array(q_len * kv_len);
    for (let i = 0; i < q_len; i++) {
      data.fill(-Infinity, i * kv_len + i + kv_len - q_len + 1, (i + 1) * kv_len);
    }
    return [...constants, { name: "mask", data, shape: [q_len, kv_len] }];
  },
};

const int32 = (name) => ({ name, type: "int32" });

/** Causal always; the one that skips what a causal mask hides. */
const grouped = {
  layout: packed,
  read: unpacked,
  refuse: ({ shape, causal }) =>
    causal && shape.q_len === shape.kv_len ? "" : "is causal and wants a prompt",
  nodes: ({ shape }) => [
    node(
      "GroupQueryAttention",
      ["q", "k", "v", "", "", int32("last_keys"), int32("total")],
      ["output", "present_k", "present_v"],
      { num_heads: shape.num_heads, kv_num_heads: shape.num_kv_heads },
      "com.microsoft",
    ),
  ],
  feeds: (ort, { shape }) => ({
    last_keys: new ort.Tensor("int32", Int32Array.of(shape.kv_len - 1), [1]),
    total: new ort.Tensor("int32", Int32Array.of(shape.kv_len), [1]),
  }),
};

async function prepare(ort, provider, form, problem, threads) {
  // TypeScript: this Node may be older than the one of the set-up, and ask for the ids only.
  const { graphModel } = await import("../onnx_model.ts");
  const tensors = Object.fromEntries(["q", "k", "v"].map((x) => [x, form.layout(problem[x])]));
  const kept = problem.resident ? ["k", "v"] : [];
  const constants = [
    ...(form.constants?.(problem) ?? []),
    ...kept.map((name) => ({ name, ...tensors[name] })),
  ];
  const outputs = ["output"];
  const model = graphModel({ nodes: form.nodes(problem), outputs, constants }, OPSET);
  const session = await ort.InferenceSession.create(model, {
    executionProviders: [provider],
    graphOptimizationLevel: "all",
    intraOpNumThreads: threads,
    logSeverityLevel: 3,
  });
  const feeds = form.feeds?.(ort, problem) ?? {};
  for (const [name, { data, shape }] of Object.entries(tensors)) {
    if (!kept.includes(name)) feeds[name] = new ort.Tensor("float32", data, shape);
  }
  let output;
  return {
    call: () =>
      session.run(feeds, outputs).then((results) => {
        output = results.output.data;
      }),
    output: () => form.read(output, problem.shape),
    dispose: () => session.release(),
  };
}

function onnxPeer(runtime, name, form, summary) {
  const web = runtime === "web";
  return {
    id: `onnxruntime_${runtime}_${name}`,
    summary: `onnxruntime-${runtime}${web ? "" : " (native)"}, ${summary}`,
    native: !web,
    places: web ? ["node", "chromium"] : ["node"],
    refuse: async (problem) => form.refuse?.(problem) ?? "",
    prepare: async (problem, environment) => {
      const ort = await (web ? environment.onnxWeb() : environment.onnxNode());
      return prepare(ort, web ? "wasm" : "cpu", form, problem, environment.threads);
    },
  };
}

export const onnxPeers = ["web", "node"].flatMap((runtime) => [
  onnxPeer(runtime, "multi_head", multiHead, "com.microsoft.MultiHeadAttention"),
  onnxPeer(runtime, "attention", attention, "ai.onnx Attention"),
  onnxPeer(runtime, "products", products, "MatMul, Softmax, MatMul"),
  onnxPeer(runtime, "grouped", grouped, "com.microsoft.GroupQueryAttention"),
]);
