// heed itself, as a user calls it: plain arrays in and out, or a cache where keys and values stay.

/** `simd` is what load() is asked for; "auto" takes relaxed SIMD where the engine has it. */
function heedPeer(id, simd, summary) {
  return {
    id,
    summary,
    refuse: async (_problem, environment) => {
      const chosen = await environment.heed("auto");
      return simd === "plain" && chosen.simd === "plain" ? "the same as heed: no relaxed SIMD" : "";
    },
    prepare: async (problem, environment) => {
      const heed = await environment.heed(simd);
      return problem.resident ? overCache(heed, problem) : overArrays(heed, problem);
    },
  };
}

function overArrays(heed, { q, k, v, causal }) {
  const options = causal ? { causal, queryOffset: "end" } : {};
  let output;
  return {
    call: () => {
      output = heed.attention(q, k, v, options).output;
    },
    output: () => output.data,
    dispose: () => {},
  };
}

function overCache(heed, { q, k, v, shape }) {
  const cache = new heed.KvCache({
    numKvHeads: shape.num_kv_heads,
    headDim: shape.head_dim,
    headDimV: shape.head_dim_v,
    capacity: shape.kv_len,
  });
  cache.append(k, v);
  let output;
  return {
    call: () => {
      output = cache.attend(q).output;
    },
    output: () => output.data,
    dispose: () => cache.dispose(),
  };
}

export const heedPeers = [
  heedPeer("heed", "auto", "heed, the build that load() chooses"),
  heedPeer("heed_plain", "plain", "heed without relaxed SIMD: the same bits on every machine"),
];
