// The numbers of one case, and what they cost: the same for every program.

/** Normal numbers that are the same in every run (mulberry32, Box and Muller). */
function normals(count, seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 15), z | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return (((z ^ (z >>> 14)) >>> 0) + 0.5) / 2 ** 32;
  };
  const numbers = new Float32Array(count);
  for (let n = 0; n < count; n += 2) {
    const radius = Math.sqrt(-2 * Math.log(uniform()));
    const angle = 2 * Math.PI * uniform();
    numbers[n] = radius * Math.cos(angle);
    if (n + 1 < count) numbers[n + 1] = radius * Math.sin(angle);
  }
  return numbers;
}

const tensor = (shape, seed) => ({
  data: normals(
    shape.reduce((a, b) => a * b, 1),
    seed,
  ),
  shape,
});

/**
 * Queries, keys and values as [batch, heads, len, dim]. With fewer queries than keys they are the last
 * tokens.
 */
export function makeProblem(oneCase, seed = 1) {
  const { shape } = oneCase;
  const { batch, num_heads, num_kv_heads, q_len, kv_len, head_dim, head_dim_v } = shape;
  return {
    ...oneCase,
    q: tensor([batch, num_heads, q_len, head_dim], seed),
    k: tensor([batch, num_kv_heads, kv_len, head_dim], seed + 1),
    v: tensor([batch, num_kv_heads, kv_len, head_dim_v], seed + 2),
    causal: shape.mask === "causal",
    queryOffset: kv_len - q_len,
  };
}

/** Pairs of query and key that are seen. */
function pairsOf({ q_len, kv_len, mask }) {
  if (mask === "full") return q_len * kv_len;
  return q_len * (kv_len - q_len) + (q_len * (q_len + 1)) / 2;
}

/** As heed::EstimateCost counts them. */
export function costOf({ shape }) {
  const { batch, num_heads, num_kv_heads, q_len, kv_len, head_dim, head_dim_v } = shape;
  const flop = 2 * batch * num_heads * (head_dim + head_dim_v) * pairsOf(shape);
  const numbers =
    num_heads * q_len * (head_dim + head_dim_v) + num_kv_heads * kv_len * (head_dim + head_dim_v);
  return { flop, bytes: 4 * batch * numbers };
}

/** [batch, heads, len, dim] as [batch, len, heads, dim], or back: the axes 1 and 2 change places. */
export function swapHeads(data, [batch, first, second, dim]) {
  const swapped = new Float32Array(data.length);
  for (let b = 0; b < batch; b++) {
    for (let i = 0; i < first; i++) {
      for (let j = 0; j < second; j++) {
        const from = ((b * first + i) * second + j) * dim;
        swapped.set(data.subarray(from, from + dim), ((b * second + j) * first + i) * dim);
      }
    }
  }
  return swapped;
}
