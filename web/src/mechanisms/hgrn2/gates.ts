// Every word opens some channels: what it opens it wipes, writes and asks.
import { COUNT, DIM, VECTORS } from "../gated_linear/story.js";

/** A channel that is wiped wholly has no logarithm. */
const LEAST = 1e-6;

/** The shares that are rewritten [COUNT, DIM], at most `open`. */
function opened(open: number): Float32Array {
  const shares = VECTORS.map((value) => Math.max(0, value));
  for (let token = 0; token < COUNT; token++) {
    const row = shares.subarray(token * DIM, (token + 1) * DIM);
    const most = Math.max(...row);
    for (let d = 0; d < DIM; d++) row[d] = (open * (row[d] as number)) / most;
  }
  return shares;
}

/** Queries that give their own word's key a weight of 1. */
function asking(shares: Float32Array): Float32Array {
  return shares.map((value, at) => {
    const first = Math.floor(at / DIM) * DIM;
    return value / Math.hypot(...shares.subarray(first, first + DIM)) ** 2;
  });
}

export function gates(open: number) {
  const shares = opened(open);
  return {
    q: asking(shares),
    perToken: { channelLogDecay: shares.map((share) => Math.log(Math.max(LEAST, 1 - share))) },
  };
}
