// What one writes first: loops over typed arrays, one row of scores at a time.

function attendRow({ q, k, v, shape, causal, queryOffset }, head, query, weights, output) {
  const { head_dim, head_dim_v, q_len, kv_len, num_heads, num_kv_heads } = shape;
  const kvHead = Math.floor((head * num_kv_heads) / num_heads);
  const keys = causal ? query + queryOffset + 1 : kv_len;
  const scale = 1 / Math.sqrt(head_dim);
  const atQ = (head * q_len + query) * head_dim;
  let most = -Infinity;
  for (let j = 0; j < keys; j++) {
    const atK = (kvHead * kv_len + j) * head_dim;
    let sum = 0;
    for (let d = 0; d < head_dim; d++) sum += q.data[atQ + d] * k.data[atK + d];
    weights[j] = scale * sum;
    if (weights[j] > most) most = weights[j];
  }
  let total = 0;
  for (let j = 0; j < keys; j++) {
    weights[j] = Math.exp(weights[j] - most);
    total += weights[j];
  }
  const at = (head * q_len + query) * head_dim_v;
  for (let j = 0; j < keys; j++) {
    const weight = weights[j] / total;
    const atV = (kvHead * kv_len + j) * head_dim_v;
    for (let d = 0; d < head_dim_v; d++) output[at + d] += weight * v.data[atV + d];
  }
}

export const plainPeer = {
  id: "plain_js",
  summary: "loops over typed arrays",
  refuse: async (_, { threads }) => (threads === 1 ? "" : "has one thread"),
  prepare: async (problem) => {
    const { num_heads, q_len, kv_len, head_dim_v } = problem.shape;
    const weights = new Float32Array(kv_len);
    let output;
    return {
      call: () => {
        output = new Float32Array(num_heads * q_len * head_dim_v);
        for (let head = 0; head < num_heads; head++) {
          for (let i = 0; i < q_len; i++) attendRow(problem, head, i, weights, output);
        }
      },
      output: () => output,
      dispose: () => {},
    };
  },
};
