// Right first: every program is compared with the float64 reference of the package before it is timed.

/** Rows of a problem that the reference computes: every one of a small problem, else some of each head. */
function rowsOf({ shape }, rowsAHead) {
  const { num_heads, q_len, kv_len } = shape;
  const few = num_heads * q_len * kv_len <= 2 ** 17 ? q_len : rowsAHead;
  const queries = Array.from({ length: Math.min(few, q_len) }, (_, n) =>
    few === 1 ? 0 : Math.floor((n * (q_len - 1)) / Math.max(1, few - 1)),
  );
  return Array.from({ length: num_heads }, (_, head) =>
    [...new Set(queries)].map((query) => ({ head, query })),
  ).flat();
}

const slice = ({ data, shape }, head, from, count) => {
  const [, , len, dim] = shape;
  const begin = (head * len + from) * dim;
  return { data: data.subarray(begin, begin + count * dim), shape: [1, 1, count, dim] };
};

/** A mask of one query: it sees every key but its own. */
const othersOnly = (query, kvLen) => ({
  data: Uint8Array.from({ length: kvLen }, (_, key) => (key === query ? 0 : 1)),
  shape: [1, kvLen],
});

/**
 * The reference's rows of a problem of one batch entry: computed once, compared with every program.
 * `problem.othersOnly`: no query sees the key at its own place.
 * @param {number} [rowsAHead] of a problem that is not small
 * @returns {Promise<{head: number, query: number, values: ArrayLike<number>}[]>}
 */
export async function oracleRows(problem, reference, rowsAHead = 3) {
  const { q, k, v, shape, causal, queryOffset } = problem;
  const group = shape.num_heads / shape.num_kv_heads;
  const rows = [];
  for (const { head, query } of rowsOf(problem, rowsAHead)) {
    const kvHead = Math.floor(head / group);
    const inputs = {
      q: slice(q, head, query, 1),
      k: slice(k, kvHead, 0, shape.kv_len),
      v: slice(v, kvHead, 0, shape.kv_len),
      ...(problem.othersOnly && { keep: othersOnly(query, shape.kv_len) }),
    };
    const params = { causal, queryOffset: queryOffset + query };
    const { output } = await reference("scaled_dot_product", inputs, params);
    rows.push({ head, query, values: output.data });
  }
  return rows;
}

/** The largest difference; infinite when a number is missing or none. */
export function largestError(output, rows, { shape }) {
  const dim = shape.head_dim_v;
  let largest = 0;
  for (const { head, query, values } of rows) {
    const begin = (head * shape.q_len + query) * dim;
    for (let d = 0; d < dim; d++) {
      const difference = Math.abs(output[begin + d] - values[d]);
      largest = Math.max(largest, Number.isNaN(difference) ? Infinity : difference);
    }
  }
  return largest;
}

/** The root mean square of output - exact over that of exact, in the rows: 1 is as far as zeros. */
export function relativeDistance(output, rows, { shape }) {
  const dim = shape.head_dim_v;
  let [apart, whole] = [0, 0];
  for (const { head, query, values } of rows) {
    const begin = (head * shape.q_len + query) * dim;
    for (let d = 0; d < dim; d++) {
      apart += (output[begin + d] - values[d]) ** 2;
      whole += values[d] ** 2;
    }
  }
  return Math.sqrt(apart / whole);
}

/** The bound that cpp/include/heed/attention.h declares: kAttentionMaxError times the largest |v|. */
export function boundOf({ v }, maxError) {
  let largest = 0;
  for (const x of v.data) largest = Math.max(largest, Math.abs(x));
  return maxError * largest;
}
