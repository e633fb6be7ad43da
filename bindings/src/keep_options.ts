import type { MatrixArgument, TensorArgument } from "./source.js";

/**
 * Which keys a query sees, as a rule instead of a matrix; position is query + queryOffset.
 * "dilated" keys at the distances 0, d, ..., reach * d, d the dilation; "longformer" the same and
 * globalTokens; "bigbird" blocks of blockSize: windowBlocks around the query's, the first
 * globalBlocks, the last lastBlocks, randomBlocks; "strided" the last `stride` keys and every
 * stride-th before; "fixed" the own block of `stride` keys and the last `summary` of each before;
 * "axial" tokens of the grid that differ along one axis only; "swin_window" those of the same
 * window of the grid; "neighborhood" the windowSize nearest along each axis of the grid.
 */
export type Pattern =
  | "dilated"
  | "longformer"
  | "bigbird"
  | "strided"
  | "fixed"
  | "axial"
  | "swin_window"
  | "neighborhood";

/** A whole number for all, or a list with one for each. */
export type OneOrEach = number | readonly number[];

/** Options that say which keys a query sees by documents, prefixes, patterns and lists. */
export interface PatternOptions {
  /**
   * [batch], how many keys every query sees; beyond them those up to its position: a prefix LM, by
   * itself. Rules hold together, so with `causal: true` a query sees no key after its position, and this
   * has no effect. Off when absent.
   */
  readonly prefixLengths?: TensorArgument | undefined;
  /**
   * Document ids [q_len] or [batch, q_len]: a query sees the keys with its own id; negative ids are
   * padding. With `keyDocuments`; `documentsFromCuSeqlens()` makes both.
   */
  readonly queryDocuments?: TensorArgument | undefined;
  /** [kv_len] or [batch, kv_len]. */
  readonly keyDocuments?: TensorArgument | undefined;
  /** A named rule; the options below are its numbers. */
  readonly pattern?: Pattern | undefined;
  /** Keys on each side ("dilated", "longformer"), >= 0. Default 256. */
  readonly reach?: number | undefined;
  /** Step between visible keys, >= 1: one, one per head, or per axis ("neighborhood"). Default 1. */
  readonly dilation?: OneOrEach | undefined;
  /** Positions that see every key and are seen by every query ("longformer"). */
  readonly globalTokens?: TensorArgument | undefined;
  /** Of "strided" and "fixed", >= 1. Default 128. */
  readonly stride?: number | undefined;
  /** Of "fixed", 1 to stride. Default 8. */
  readonly summary?: number | undefined;
  /**
   * Extents of the tokens' grid, row by row, with kv_len as product: two or three ("axial"), two
   * ("swin_window"), one to three ("neighborhood"). Default one line.
   */
  readonly grid?: readonly number[] | undefined;
  /** The only axis along which tokens see each other ("axial"). Default each. */
  readonly axis?: number | undefined;
  /** Tokens of a window: one number or one per axis. Default 7, or the most up to 7 that fits. */
  readonly windowSize?: OneOrEach | undefined;
  /** How far windows are shifted ("swin_window"): one number or one per axis. Default 0. */
  readonly shift?: OneOrEach | undefined;
  /** Tokens of a block, or [queries, keys] of `blockKeep` and `blockIndptr`. Default 64. */
  readonly blockSize?: number | readonly [queries: number, keys: number] | undefined;
  /** Of "bigbird": odd, the own block included. Default 3. */
  readonly windowBlocks?: number | undefined;
  /** Of "bigbird". Default 2. */
  readonly globalBlocks?: number | undefined;
  /** Of "bigbird": how many blocks at the end see and are seen by all too. Default 0. */
  readonly lastBlocks?: number | undefined;
  /** Of "bigbird". Default 3. */
  readonly randomBlocks?: number | undefined;
  /** Which random blocks: a whole number. Default 0. */
  readonly patternSeed?: number | bigint | undefined;
  /** Visible blocks: [q_blocks, kv_blocks] or [num_heads or 1, q_blocks, kv_blocks]. */
  readonly blockKeep?: MatrixArgument | undefined;
  /** Visible blocks in CSR: [q_blocks + 1], or [num_heads * q_blocks + 1] for one list a head. */
  readonly blockIndptr?: TensorArgument | undefined;
  /** Blocks of keys, row after row. */
  readonly blockIndices?: TensorArgument | undefined;
  /** [num_pairs, 2], pairs (query, key) of what is visible: a graph, or a matrix in COO. */
  readonly keepPairs?: MatrixArgument | undefined;
}
