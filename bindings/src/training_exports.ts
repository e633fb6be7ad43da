// What both entries, training.ts (web) and node_training.ts, export beside `load`.
export { HeedError, type HeedErrorCode } from "./errors.js";
export type { MemoryReport } from "./heap.js";
export type { Variant } from "./heed.js";
export type { LoadOptions, LoadProgress, Url, WasmModule } from "./load_options.js";
export type { PlainTensor } from "./tensor.js";
export type { Training } from "./training_instance.js";
export type {
  HeadsOptions,
  Ids,
  SaveOptions,
  TokenBatch,
  TrainBatch,
  TransformerModel,
  TransformerModelMembers,
} from "./training_model.js";
export type {
  OptimizerOptions,
  StepResult,
  TransformerOptions,
  TransformerSizes,
} from "./training_options.js";
export { VERSION } from "./version.js";
