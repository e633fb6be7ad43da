import type { Failure, MemoryGlue, ParamValue } from "./glue.js";
import type { StepResult } from "./training_options.js";

/** A configuration as it crosses: words of enumerations are their places in a list. */
export type ConfigRow = Record<string, boolean | number | string>;

/** The module that trains: bindings/embind/training/training_embind.cc. */
export interface TrainingGlue extends MemoryGlue {
  modelNew(config: ConfigRow, paramNames: string, paramValues: ParamValue[]): number | Failure;
  modelLoad(pointer: number, bytes: number): number | Failure;
  modelDescribe(id: number): ConfigRow | Failure;
  /** `numbers`: batch, then pointer and count of tokens and of source ids. */
  modelForward(id: number, numbers: number[], logits: number): Failure | null;
  /** `numbers`: heads, layer, pointer, batch, num_heads, q_len, kv_len. */
  modelWeights(id: number, numbers: number[]): Failure | null;
  modelSave(id: number, dtype: number): Uint8Array | Failure;
  modelFree(id: number): void;
  trainerNew(id: number, options: Record<string, number>): Failure | null;
  /** `numbers`: as modelForward, then pointer and count of the targets. */
  trainStep(id: number, numbers: number[]): StepResult | Failure;
  trainableMechanisms(): string[];
  setThreads(count: number): Failure | null;
  heapInUse(): number;
}
