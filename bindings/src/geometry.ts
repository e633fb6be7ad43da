import { fail, HeedError } from "./errors.js";
import { type Layout, type View4, viewAsHeads } from "./shape.js";
import type { Source } from "./source.js";

/** The sizes of one attention problem. */
export interface Geometry {
  batch: number;
  heads: number;
  qLen: number;
  kvLen: number;
  headDim: number;
  /** Rank in which the caller gave q. */
  rank: number;
  layout: Layout;
}

/** Views of q, k and v as [batch, heads, len, dim]; some mechanisms have no keys. */
export interface AttentionViews {
  q: View4;
  k?: View4;
  v: View4;
}

const show = (shape: readonly number[]): string => `[${shape.join(", ")}]`;

function checkEqual(
  what: string,
  qShape: Source,
  kShape: Source,
  left: number,
  right: number,
): void {
  if (left !== right) {
    throw new HeedError(
      "shape",
      `${kShape.name}: ${what} is ${right} (shape ${show(kShape.shape)}), expected ${left} as in ${qShape.name} (shape ${show(qShape.shape)})`,
    );
  }
}

function checkHeads(heads: number, kvHeads: number): void {
  const fits = kvHeads === 0 ? heads === 0 : heads % kvHeads === 0;
  if (!fits) {
    throw new HeedError(
      "shape",
      `q: ${heads} heads are not a multiple of the ${kvHeads} heads of k and v`,
    );
  }
}

/** Checks that q, k and v fit together; keys have a width of their own where a score joins two. */
export function measure(
  sources: { q: Source; k?: Source | undefined; v: Source },
  layout: Layout,
  keyWidth: "as queries" | "own",
): { geometry: Geometry; views: AttentionViews } {
  const { q, k: keys, v } = sources;
  const k = keys ?? v;
  const rank = q.shape.length;
  for (const other of [k, v]) {
    if (other.shape.length !== rank) {
      throw new HeedError(
        "shape",
        `${other.name}: got rank ${other.shape.length} (shape ${show(other.shape)}), expected rank ${rank} as q (shape ${show(q.shape)})`,
      );
    }
  }
  const views = {
    q: viewAsHeads("q", q.shape, layout),
    k: viewAsHeads(k.name, k.shape, layout),
    v: viewAsHeads("v", v.shape, layout),
  };
  const [batch = 0, heads = 0, qLen = 0, headDim = 0] = views.q.shape;
  const [kBatch = 0, kHeads = 0, kvLen = 0, kDim = 0] = views.k.shape;
  const [vBatch = 0, vHeads = 0, vLen = 0] = views.v.shape;
  checkEqual("batch", q, k, batch, kBatch);
  checkEqual("batch", q, v, batch, vBatch);
  if (keys && keyWidth === "as queries") checkEqual("dim", q, k, headDim, kDim);
  checkEqual("number of heads", k, v, kHeads, vHeads);
  checkEqual("length", k, v, kvLen, vLen);
  checkHeads(heads, kHeads);
  const geometry = { batch, heads, qLen, kvLen, headDim, rank, layout };
  return { geometry, views: keys ? views : { q: views.q, v: views.v } };
}

/** Shape of `keep` or `bias` as four extents that broadcast to [batch, heads, q_len, kv_len]. */
export function broadcastShape(source: Source, geometry: Geometry): number[] {
  const { name, shape } = source;
  const { batch, heads, qLen, kvLen } = geometry;
  const full = [batch, heads, qLen, kvLen];
  if (shape.length !== 4 && shape.length !== 2) {
    const why =
      shape.length === 3 ? "; rank 3 is ambiguous: is the first extent batch or heads?" : "";
    fail(
      "shape",
      `${name}.shape`,
      [...shape],
      `[q_len, kv_len] or [batch, heads, q_len, kv_len]${why}`,
    );
  }
  const shape4 = shape.length === 2 ? [1, 1, ...shape] : [...shape];
  if (!shape4.every((extent, axis) => extent === 1 || extent === full[axis])) {
    throw new HeedError(
      "shape",
      `${name}: shape ${show(shape)} does not broadcast to [batch, heads, q_len, kv_len] = ${show(full)}`,
    );
  }
  return shape4;
}

/** Checks `keyLengths`: [batch] or [batch, q_len] numbers in [0, kv_len]. */
export function checkKeyLengths(
  source: Source,
  values: ArrayLike<number>,
  geometry: Geometry,
): void {
  const { shape } = source;
  const { batch, qLen, kvLen } = geometry;
  const fits =
    (shape.length === 1 && shape[0] === batch) ||
    (shape.length === 2 && shape[0] === batch && shape[1] === qLen);
  if (!fits) {
    fail(
      "shape",
      "keyLengths.shape",
      [...shape],
      `[batch] = [${batch}] or [batch, q_len] = [${batch}, ${qLen}]`,
    );
  }
  for (let i = 0; i < values.length; i++) {
    const length = values[i] as number;
    if (length < 0 || length > kvLen)
      fail("range", `keyLengths[${i}]`, length, `0 to kv_len = ${kvLen}`);
  }
}

/** Checks a vector with one number per query head. */
export function checkPerHead(source: Source, values: ArrayLike<number>, geometry: Geometry): void {
  const { name, shape } = source;
  if (shape.length !== 1 || shape[0] !== geometry.heads) {
    fail("shape", `${name}.shape`, [...shape], `[num_heads] = [${geometry.heads}]`);
  }
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number;
    if (Number.isFinite(value) || (name === "sinks" && value === -Infinity)) continue;
    fail("range", `${name}[${i}]`, value, name === "sinks" ? "finite or -Infinity" : "finite");
  }
}
