import type { Heed } from "heed";
import type { Outputs } from "./onnx_attention.js";
import type { Case, OnnxTensor } from "./onnx_files.js";

/** Outputs of the operator, in their order. */
export const LINEAR_SLOTS = ["output", "present_state"] as const;

const floats = (data: ArrayLike<number>) => Float32Array.from(data);

/** [batch, len, heads * dim] as [batch, heads, len, dim]. */
function byHeads({ data, shape }: OnnxTensor, heads: number): OnnxTensor["data"] {
  const [batch = 0, len = 0, width = 0] = shape;
  const dim = width / heads;
  const to = new Array<number>(data.length);
  for (let b = 0; b < batch; b++)
    for (let t = 0; t < len; t++)
      for (let h = 0; h < heads; h++)
        for (let c = 0; c < dim; c++)
          to[((b * heads + h) * len + t) * dim + c] =
            data[(b * len + t) * width + h * dim + c] ?? 0;
  return to;
}

const ROWS: Readonly<Record<string, string>> = {
  linear: "mamba2",
  gated: "gated_linear",
  delta: "delta_rule",
  gated_delta: "kimi_delta",
};
/** The same rules with one decay for all channels of a head. */
const SHARED: Readonly<Record<string, string>> = {
  gated: "mamba2",
  gated_delta: "gated_delta_rule",
};

/** Runs one case of the LinearAttention operator through the package. */
export function runLinear(heed: Heed, testCase: Case, tensors: OnnxTensor[]): Outputs {
  const node = testCase.nodes[0];
  const attrs = node?.attrs ?? {};
  const heads = Number(attrs.q_num_heads);
  const kvHeads = Number(attrs.kv_num_heads);
  const rule = String(attrs.update_rule ?? "gated_delta");
  let next = 0;
  const [query, key, value, past, decay, beta] = Array.from({ length: 6 }, (_, slot) =>
    node?.inputs[slot] ? tensors[next++] : undefined,
  );
  if (query === undefined || key === undefined || value === undefined) {
    throw new Error(`${testCase.case}: query, key and value are required`);
  }
  const [batch = 0, len = 0, width = 0] = query.shape;
  const dim = width / heads;
  const dimV = (value.shape[2] ?? 0) / kvHeads;
  const split = (tensor: OnnxTensor, count: number) => ({
    data: floats(byHeads(tensor, count)),
    shape: [batch, count, len, (tensor.shape[2] ?? 0) / count],
  });
  const perToken = (tensor: OnnxTensor) => {
    // One value for all heads, or one each.
    const shared = tensor.shape[2] === 1;
    const wide = shared
      ? {
          ...tensor,
          data: [...tensor.data].flatMap((x) => new Array<number>(kvHeads).fill(x)),
          shape: [batch, len, kvHeads],
        }
      : tensor;
    return { data: floats(byHeads(wide, kvHeads)), shape: [batch, kvHeads, len] };
  };
  const perHead = decay !== undefined && decay.shape[2] === kvHeads && dim !== 1;
  const id = (perHead ? SHARED[rule] : ROWS[rule]) ?? rule;
  const inputs: Record<string, { data: Float32Array; shape: readonly number[] }> = {
    q: split(query, heads),
    k: split(key, kvHeads),
    v: split(value, kvHeads),
  };
  if (past) inputs.initialState = { data: floats(past.data), shape: past.shape };
  if (decay && rule.startsWith("gated")) {
    if (perHead) inputs.logDecay = perToken(decay);
    else inputs.channelLogDecay = split(decay, kvHeads);
  }
  if (beta && rule.endsWith("delta")) inputs.beta = perToken(beta);
  const scale = Number(attrs.scale ?? 0);
  const results = heed.run(id, inputs, {
    scale: scale === 0 ? 1 / Math.sqrt(dim) : scale,
    returnState: true,
    ...(rule.endsWith("delta") && { qkNorm: "none" }),
  }) as Record<string, { data: Float32Array }>;
  const output = new Float32Array(batch * len * heads * dimV);
  const mine = results.output?.data ?? new Float32Array();
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++)
      for (let t = 0; t < len; t++)
        for (let e = 0; e < dimV; e++)
          output[(b * len + t) * heads * dimV + h * dimV + e] =
            mine[((b * heads + h) * len + t) * dimV + e] ?? 0;
  return {
    output: { data: output, shape: [batch, len, heads * dimV] },
    present_state: {
      data: results.state?.data ?? new Float32Array(),
      shape: [batch, kvHeads, dim, dimV],
    },
  };
}
