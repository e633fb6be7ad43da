// Every channel of the keys is a softmax over the tokens: a summary of the text that queries mix.
import { floats, make } from "../../lib/call.js";
import { DIM, K, Q, TOKENS, UNIT } from "../block_mixture/text.js";
import type { Ranked } from "../linformer/ranked.js";

/** A query that softmax turns into one channel alone. */
const SURE = 80;

/** The first `channels` of queries or keys, times `factor`. */
function cut(rows: ArrayLike<number>, channels: number, factor: number) {
  const values = Float32Array.from({ length: TOKENS * channels }, (_, at) => {
    return factor * (rows[Math.floor(at / channels) * DIM + (at % channels)] as number);
  });
  return floats(values, [1, 1, TOKENS, channels]);
}

export function efficient(factor: number): Ranked {
  const k = (channels: number) => cut(K.data, channels, factor);
  return {
    sizes: [1, 2, 3, 4, 6, 8, 10, 12, 14, 16],
    keys: (channels) => channels,
    call: (heed, channels) => {
      const inputs = { q: cut(Q.data, channels, factor), k: k(channels), v: UNIT };
      return make(heed, { id: "efficient", inputs, params: {} });
    },
    parts: (heed, channels) => {
      const asking = Float32Array.from({ length: channels * channels }, (_, at) =>
        Math.floor(at / channels) === at % channels ? SURE : 0,
      );
      const q = floats(asking, [1, 1, channels, channels]);
      return heed.run("efficient", { q, k: k(channels), v: UNIT }).output.data as Float32Array;
    },
  };
}
