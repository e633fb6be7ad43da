import type { DType, DTypeArray } from "./dtype.js";

/** What C++ answers when a call is refused (bindings/embind/wire.h). */
export interface Failure {
  code: string;
  message: string;
}

/** A row of heed::Mechanisms() as C++ sends it. */
export interface MechanismRow {
  id: string;
  family: string;
  title: string;
  year: string;
  source: string;
  summary: string;
  formula: string;
  inputs: string;
  params: string;
  cost: string;
  capabilities: string;
}

/** A row of heed::Inputs() as C++ sends it. */
export interface InputRow {
  name: string;
  kind: string;
  shape: string;
  draw: string;
  summary: string;
  readBy: string;
}

/** A row of heed::Parameters() as C++ sends it. */
export interface ParameterRow {
  name: string;
  type: string;
  default: string;
  range: string;
  symbol: string;
  summary: string;
  readBy: string;
}

export interface OutputSpec {
  name: string;
  shape: number[];
  dtype: DType;
}

/** What forward gives, and which inputs have a gradient (heed::BackwardPlan). */
export interface BackwardPlan {
  results: OutputSpec[];
  gradients: OutputSpec[];
}

export type ParamValue = boolean | number | string | number[];

/** Memory of an instance; the C runtime's allocator. */
export interface MemoryGlue {
  _malloc(bytes: number): number;
  _free(pointer: number): void;
  wasmMemory: { readonly buffer: ArrayBufferLike };
  /** Its workers, where it has threads. */
  PThread?: { terminateAllThreads(): void };
}

/** A request: `inputs` is the address of the numbers of a Wire, and so is every table below. */
export type CallArguments = readonly [
  id: string,
  inputNames: string,
  inputs: number,
  paramNames: string,
  paramValues: ParamValue[],
];

/** Plans, allocates and runs: the results as text (bindings/embind/results.h). */
type RunCall = (...call: [...CallArguments, headsLast: boolean]) => string | Failure;

/** A cache as C++ reports it. */
export interface CacheInfo {
  lengths: number[];
  bytes: number;
  sharedBytes: number;
  blocks: number;
  blockSize: number;
}

/** Work and memory of a call, before it is made. */
export interface CostEstimate {
  /** Bytes of all inputs, once each, as they are stored. */
  readonly bytesRead: number;
  /** Bytes of all results. */
  readonly bytesWritten: number;
  /** Multiply-adds of the matrix products, each counted as 2; absent where nobody has counted. */
  readonly flops?: number;
  /** The most bytes that the kernels hold at one time beside inputs and results; absent as `flops`. */
  readonly scratchBytes?: number;
}

/** The kernels' module: bindings/embind/heed_embind.cc. */
export interface KernelGlue extends MemoryGlue {
  /** Addresses of tables as text, to be freed: bindings/src/registry_table.ts. */
  mechanisms(): number;
  inputs(): number;
  /** The T5 bucket, or a Failure. */
  t5Bucket(relative: number, causal: boolean, numBuckets: number, maxDistance: number): number;
  parameters(): number;
  run: RunCall;
  /** Writes the 0/1 picture of the keep rules into the one tensor of the last table. */
  explain(...call: [...CallArguments, picture: number]): Failure | null;
  estimateCost(...call: [...CallArguments, threads: number]): CostEstimate | Failure;
  /** Gradients; only in the full build (bindings/embind/gradient_embind.cc). */
  planBackward(...call: CallArguments): BackwardPlan | Failure;
  runForward(...call: [...CallArguments, resultNames: string, resultTable: number]): Failure | null;
  /** Names and tables of the results, of what arrives at them, and of the gradients. */
  runBackward(...call: [...CallArguments, names: string[], tables: number[]]): Failure | null;
  /** Operations around the mechanisms (cpp/include/heed/operations.h), in the same form. */
  runOperation: RunCall;
  cacheNew(numbers: number[]): number | Failure;
  cacheAppend(id: number, names: string, table: number, lengths: number[]): Failure | null;
  cacheRewind(id: number, sequence: number, length: number): Failure | null;
  cacheTokens(id: number, sequence: number, head: number): number[] | Failure;
  cacheFork(id: number, sequences: number[]): number | Failure;
  cacheAttend(
    id: number,
    names: string,
    table: number,
    paramNames: string,
    paramValues: ParamValue[],
  ): Failure | null;
  cacheInfo(id: number): CacheInfo | Failure;
  cacheFree(id: number): void;
  attentionVarlen(
    names: string,
    table: number,
    paramNames: string,
    paramValues: ParamValue[],
  ): Failure | null;
  setThreads(count: number): Failure | null;
  alibiSlopes(heads: number, maxExponent: number): number[];
  heapInUse(): number;
}

/** The oracle's module: bindings/embind/reference/reference_embind.cc. */
export interface ReferenceGlue extends MemoryGlue {
  run(...call: CallArguments): (Omit<OutputSpec, "dtype"> & { data: DTypeArray })[] | Failure;
}

/** The factory that Emscripten's MODULARIZE + EXPORT_ES6 makes the default export. */
export type GlueFactory = (moduleArguments: Record<string, unknown>) => Promise<unknown>;
