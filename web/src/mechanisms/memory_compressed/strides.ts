// A mean of every few keys, and of their values.
import { make } from "../../lib/call.js";
import { TOKENS } from "../block_mixture/text.js";
import { INPUTS, type Ranked } from "../linformer/ranked.js";

const keysOf = (compression: number) => Math.ceil(TOKENS / compression);

export const memoryCompressed: Ranked = {
  sizes: [64, 32, 16, 12, 8, 6, 5, 4, 3, 2, 1],
  keys: keysOf,
  call: (heed, compression) =>
    make(heed, { id: "memory_compressed", inputs: INPUTS, params: { compression } }),
  parts: (_, compression) => {
    const parts = new Float32Array(keysOf(compression) * TOKENS);
    for (let n = 0; n < keysOf(compression); n++) {
      const [from, to] = [n * compression, Math.min(TOKENS, (n + 1) * compression)];
      parts.fill(1 / (to - from), n * TOKENS + from, n * TOKENS + to);
    }
    return parts;
  },
};
