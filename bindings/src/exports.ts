// What both entries, index.ts (web) and node.ts, export beside `load`.
export type {
  AnalysisFunctions,
  AnalyzeOptions,
  AnalyzeResult,
  AttributionOptions,
  AttributionResult,
  ErasureOptions,
  ErasureResult,
  HeadSimilarityOptions,
  HeadSimilarityResult,
  PartialAttention,
  Range,
  RolloutLayer,
  RolloutOptions,
  WeightsOptions,
  WeightsTileOptions,
} from "./analysis.js";
export type {
  AttentionOptions,
  AttentionResult,
  Dropout,
  Kernel,
  Normalize,
  OutputDType,
  QueryOffset,
  RelativeRows,
  ResultTensor,
  Score,
  ScoreStage,
  Window,
} from "./attention.js";
export type {
  AttentionClassifier,
  AttentionClassifierConstructor,
  AttentionClassifierMembers,
  AttentionClassifierOptions,
  AttentionClassifierSizes,
} from "./attention_classifier.js";
export type { DType } from "./dtype.js";
export { HeedError, type HeedErrorCode } from "./errors.js";
export type { CostEstimate, EstimateCostFunction } from "./estimate_cost.js";
export type { ExplainFunction, ExplainSizes } from "./explain.js";
export type { MemoryReport } from "./heap.js";
export type {
  AttentionFunction,
  Build,
  Float64Data,
  Heed,
  ReferenceInputs,
  RunFunction,
  RunInputs,
  RunOutput,
  RunParams,
  RunResult,
  Variant,
} from "./heed.js";
export type { OneOrEach, Pattern, PatternOptions } from "./keep_options.js";
export type {
  CacheAppendOptions,
  CacheAttendOptions,
  CacheDType,
  CacheMemory,
  CacheResult,
  Counts,
  KvCache,
  KvCacheConstructor,
  KvCacheMembers,
  KvCacheOptions,
} from "./kv_cache.js";
export type { LoadOptions, LoadProgress, Url, WasmModule } from "./load_options.js";
export {
  type AlibiOptions,
  alibiSlopes,
  documentsFromCuSeqlens,
  keepFromCoo,
  keepFromCsr,
  keepFromDropMask,
  lastN,
} from "./masks.js";
export type {
  MultiHeadAttention,
  MultiHeadAttentionConstructor,
  MultiHeadAttentionMembers,
  MultiHeadAttentionOptions,
  MultiHeadAttentionSizes,
  MultiHeadForwardOptions,
} from "./multi_head_attention.js";
export type {
  LatentForwardOptions,
  MultiHeadLatentAttention,
  MultiHeadLatentAttentionConstructor,
  MultiHeadLatentAttentionMembers,
  MultiHeadLatentAttentionOptions,
  MultiHeadLatentAttentionSizes,
} from "./multi_head_latent_attention.js";
export type { NestedArray, NestedNumbers } from "./nested.js";
export type { TensorDType, TensorFunction, TensorOptions } from "./new_tensor.js";
export type {
  LearnedPositionFunction,
  LearnedPositionOptions,
  PositionOptions,
  PositionResult,
  RopeFunction,
  RopeOptions,
  RopePairing,
  RopeScaling,
  SinusoidalOptions,
  T5BucketOptions,
  XposFunction,
  XposOptions,
} from "./position.js";
export type { BmmOptions, ProductFunctions } from "./products.js";
export type { ReferenceResult } from "./reference.js";
export type { Mechanism, MechanismInput, Parameter, ReadBy } from "./registry.js";
export type {
  LayerNormOptions,
  LayerNormResult,
  MaskedSoftmaxOptions,
  RmsNormOptions,
  RowFunctions,
  SoftmaxOptions,
} from "./rows.js";
export type { Layout } from "./shape.js";
export type { MatrixArgument, TensorArgument, TensorData, TensorElements } from "./source.js";
export type { LoadStateOptions, StateDict } from "./state_dict.js";
export type { PlainTensor, Tensor, TensorMembers } from "./tensor.js";
export type {
  SelfAttentionOptions,
  TransformerBlock,
  TransformerBlockConstructor,
  TransformerBlockMembers,
  TransformerBlockOptions,
  TransformerBlockSizes,
} from "./transformer_block.js";
export type { VarlenFunction, VarlenOptions, VarlenResult } from "./varlen.js";
export { VERSION } from "./version.js";
export type {
  AttentionGradients,
  AttentionVjp,
  AttentionVjpFunction,
  RunVjp,
  RunVjpFunction,
} from "./vjp.js";
