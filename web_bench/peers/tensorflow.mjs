// TensorFlow.js on its WebAssembly back end. The natural code keeps all heads in one tensor of rank 4;
// split by head, with keys transposed beforehand, it reaches a much faster product.

function maskOf(tf, { shape, causal, queryOffset }) {
  if (!causal) return undefined;
  const { q_len, kv_len } = shape;
  const data = new Float32Array(q_len * kv_len);
  for (let i = 0; i < q_len; i++) {
    data.fill(-Infinity, i * kv_len + i + queryOffset + 1, (i + 1) * kv_len);
  }
  return tf.tensor(data, [q_len, kv_len]);
}

/** softmax(scale q k^T + mask) v */
function attend(tf, q, k, v, { scale, mask, transposed }) {
  const products = transposed ? tf.matMul(q, k) : tf.matMul(q, k, false, true);
  const scaled = tf.mul(products, scale);
  return tf.matMul(tf.softmax(mask === undefined ? scaled : tf.add(scaled, mask)), v);
}

/** Rank 4: one expression for all heads. */
function together(tf, problem) {
  const { q, k, v } = problem;
  const place = ({ data, shape }) => tf.tensor(data, shape);
  return { split: (name) => [place({ q, k, v }[name])], transposed: false };
}

/** Rank 2: one tensor a head. */
function byHead(tf, problem) {
  const split = (name) => {
    const { data, shape } = problem[name];
    const [, heads, len, dim] = shape;
    return Array.from({ length: heads }, (_, head) => {
      const part = data.subarray(head * len * dim, (head + 1) * len * dim);
      const tensor = tf.tensor(part, [len, dim]);
      return name === "k" ? tf.transpose(tensor) : tensor;
    });
  };
  return { split, transposed: true };
}

function prepare(tf, problem, form) {
  const { split, transposed } = form(tf, problem);
  const mask = maskOf(tf, problem);
  const scale = tf.scalar(1 / Math.sqrt(problem.shape.head_dim));
  const kept = problem.resident
    ? { k: tf.tidy(() => split("k")), v: tf.tidy(() => split("v")) }
    : {};
  let output;
  return {
    call: () => {
      output = tf.tidy(() => {
        const [q, k, v] = ["q", "k", "v"].map((name) => kept[name] ?? split(name));
        const parts = q.map((_, n) =>
          attend(tf, q[n], k[n], v[n], { scale, mask, transposed }).dataSync(),
        );
        if (parts.length === 1) return parts[0];
        const joined = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
        parts.reduce((at, part) => {
          joined.set(part, at);
          return at + part.length;
        }, 0);
        return joined;
      });
    },
    output: () => output,
    dispose: () => tf.dispose([scale, mask, ...(kept.k ?? []), ...(kept.v ?? [])].filter(Boolean)),
  };
}

const tensorflowPeer = (id, form, summary) => ({
  id,
  summary: `@tensorflow/tfjs-backend-wasm, ${summary}`,
  refuse: async (_, { threads }) => (threads === 1 ? "" : "is asked for one thread only"),
  prepare: async (problem, environment) => prepare(await environment.tensorflow(), problem, form),
});

export const tensorflowPeers = [
  tensorflowPeer("tensorflow", together, "all heads in one tensor"),
  tensorflowPeer("tensorflow_by_head", byHead, "one product a head"),
];
