// One query over keys in parts, each attended to alone, and the parts merged by their lse.
import type { Heed } from "heed";
import { floats } from "../../lib/call.js";
import { hashText, normalSource } from "../../lib/random.js";
import { DIM, K, KEYS, Q } from "./tiles.js";

const normal = normalSource(hashText("split v"));
export const V = floats(Float32Array.from({ length: KEYS * DIM }, normal), [1, 1, KEYS, DIM]);

export interface Part {
  output: Float32Array;
  lse: number;
}

export interface Split {
  parts: Part[];
  /** After 1, 2, ... parts. */
  merged: Part[];
  /** Attention over all keys at once. */
  whole: Part;
}

const rows = ({ data }: typeof K, from: number, count: number) =>
  floats(data.slice(from * DIM, (from + count) * DIM), [1, 1, count, DIM]);

export function split(heed: Heed, count: number, scale: number): Split {
  const size = KEYS / count;
  const attend = (from: number, keys: number) =>
    heed.attention(Q, rows(K, from, keys), rows(V, from, keys), { scale, returnLse: true });
  const plain = ({
    output,
    lse,
  }: {
    output: { data: ArrayLike<number> };
    lse: { data: ArrayLike<number> };
  }): Part => ({
    output: Float32Array.from(output.data),
    lse: lse.data[0] as number,
  });
  const states = Array.from({ length: count }, (_, part) => attend(part * size, size));
  return {
    parts: states.map(plain),
    merged: states.map((_, last) => plain(heed.merge(states.slice(0, last + 1)))),
    whole: plain(attend(0, KEYS)),
  };
}
