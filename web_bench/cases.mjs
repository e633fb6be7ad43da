// What the web benchmark times: attention of one batch entry, 8 heads of 64, in groups that answer a
// question each.

/**
 * @typedef {object} Case
 * @property {string} group "forward", "causal", "short", "decode" or "long"
 * @property {{batch: number, num_heads: number, num_kv_heads: number, q_len: number, kv_len: number,
 *   head_dim: number, head_dim_v: number, mask: "full" | "causal"}} shape as in heed-bench's JSON
 * @property {boolean} resident whether keys and values stay where the program computes between calls
 * @property {number} threads
 */

const HEADS = 8;
const HEAD_DIM = 64;

const GROUPS = {
  forward: { lengths: [128, 512, 1024, 2048, 4096], mask: "full" },
  causal: { lengths: [128, 512, 1024, 2048, 4096], mask: "causal" },
  short: { lengths: [1, 16, 32, 64, 128], mask: "full" },
  decode: { lengths: [1024, 4096, 16384], mask: "full" },
  long: { lengths: [8192, 16384], mask: "causal" },
};

export const groupNames = Object.keys(GROUPS);

function shapeOf(group, length, mask) {
  return {
    batch: 1,
    num_heads: HEADS,
    num_kv_heads: HEADS,
    q_len: group === "decode" ? 1 : length,
    kv_len: length,
    head_dim: HEAD_DIM,
    head_dim_v: HEAD_DIM,
    mask,
  };
}

/** "scaled_dot_product/h8/d64/l1x4096/full/resident/t1", as heed-bench names its cases. */
export function nameOf({ shape, resident, threads }) {
  const length = shape.q_len === shape.kv_len ? shape.q_len : `${shape.q_len}x${shape.kv_len}`;
  const kept = resident ? "/resident" : "";
  return `scaled_dot_product/h${shape.num_heads}/d${shape.head_dim}/l${length}/${shape.mask}${kept}/t${threads}`;
}

/**
 * The cases of some groups, for one thread count. `lengths` replaces every group's own.
 * @returns {Case[]}
 */
export function makeCases({ groups = groupNames, lengths, threads = 1, filter = "" }) {
  const expression = new RegExp(filter);
  const cases = groups.flatMap((group) => {
    const rule = GROUPS[group];
    if (rule === undefined) {
      throw new Error(`--groups: "${group}" is none of ${groupNames.join(", ")}`);
    }
    // Decoding asks twice: keys and values come with every call, or are there already.
    const kinds = group === "decode" ? [false, true] : [false];
    return (lengths ?? rule.lengths).flatMap((length) =>
      kinds.map((resident) => ({
        group,
        shape: shapeOf(group, length, rule.mask),
        resident,
        threads,
      })),
    );
  });
  return cases.filter((one) => expression.test(nameOf(one)));
}
